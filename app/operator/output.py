"""How the operator's commands print: aligned text for people, JSON for machines."""
import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import click

from services.events.record import rfc3339

_MB = 1024 * 1024
as_json = click.option("--json", "machine", is_flag=True, help="JSON, for programs.")


def print_rows(rows: Sequence[Any], columns: Mapping[str, Callable[[Any], Any]], *,
               machine: bool) -> None:
    """Print records: one line each under `columns` (heading -> what of a record), or all their
    fields as JSON."""
    if machine:
        print_json([dataclasses.asdict(row) for row in rows])
        return
    if not rows:
        click.echo("none")
        return
    table = [list(columns), *([_text(get(row)) for get in columns.values()] for row in rows)]
    widths = [max(len(line[number]) for line in table) for number in range(len(columns))]
    for line in table:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())


def print_json(value: Any) -> None:
    """Print a value whose times are RFC 3339."""
    click.echo(json.dumps(value, indent=2, default=lambda item: rfc3339(item)))


def moment(value: datetime) -> str:
    """A time for people: UTC, to the second."""
    return rfc3339(value)[:19] + "Z"


def megabytes(size_bytes: int) -> str:
    """A size for people, in units of 1024 * 1024 bytes."""
    return f"{size_bytes / _MB:.1f} MB"


def _text(value: Any) -> str:
    if value is None or value == "":
        return "-"
    return moment(value) if isinstance(value, datetime) else str(value)
