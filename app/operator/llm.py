"""The LLM proxy by hand: `python -m app.operator llm --help`."""
import dataclasses
from datetime import timedelta

import click

from app.operator.output import as_json, print_json, print_rows
from config.settings import SettingsError, get_settings
from models.database import now
from services.accounts import users
from services.llm import operator_report, switches
from services.llm.call_cost import dollars
from services.llm.configured.config_file import load_config
from services.llm.switches import Scope
from services.llm.totals import day_of


@click.group()
def llm() -> None:
    """Look at the LLM proxy, and switch it off and on (docs/llm.md)."""


@llm.command("usage")
@click.argument("email", required=False)
@click.option("--days", default=7, show_default=True, type=click.IntRange(1, 36_500),
              help="Days (UTC), today included.")
@as_json
def usage(email: str | None, days: int, machine: bool) -> None:
    """Show what each account, or EMAIL, used by day; cost in US dollars."""
    owner_id = users.get_named(email).id if email else None
    rows = operator_report.by_owner(day_of(now()) - timedelta(days=days - 1), owner_id)
    if machine:
        print_json([
            {"owner": row.email, "owner_id": row.owner_id, "day": row.day.isoformat()}
            | dataclasses.asdict(row.figures) | {"cost": dollars(row.figures.cost)}
            for row in rows])
        return
    print_rows(rows, {
        "day": lambda row: row.day, "owner": lambda row: row.email,
        "calls": lambda row: row.figures.calls,
        "estimated": lambda row: row.figures.incomplete_calls,
        "tokens": lambda row: f"{row.figures.tokens:,}",
        "cost": lambda row: f"{dollars(row.figures.cost):.4f}",
        "unpriced": lambda row: row.figures.unpriced_calls,
    }, machine=False)


@llm.command("status")
@as_json
def status(machine: bool) -> None:
    """Show whether the proxy is configured and switched on, what is under way, and how each
    upstream did in the last hour. The exit code is 1 if something is wrong with it."""
    configured, wrong = _configuration()
    state, off = operator_report.state(), switches.list_off()
    if machine:
        print_json({"configuration": configured, "state": dataclasses.asdict(state),
                    "off": [dataclasses.asdict(one) for one in off]})
    else:
        click.echo(f"configuration: {configured}")
        for one in off:
            click.echo(f"OFF: {one.scope.value} {one.name} {one.reason}".rstrip())
        click.echo(f"open calls: {state.open_calls}, of them in nobody's hand: {state.abandoned}")
        print_rows(state.upstreams, {
            "upstream, last hour": lambda row: row.name, "calls": lambda row: row.calls,
            "failed": lambda row: row.failed, "estimated": lambda row: row.incomplete,
            "first byte, s": lambda row: row.first_byte_s and f"{row.first_byte_s:.2f}",
        }, machine=False)
    if wrong:
        raise click.exceptions.Exit(1)


@llm.command("off")
@click.option("--owner", metavar="EMAIL", help="Only the calls of this account.")
@click.option("--upstream", metavar="NAME", help="Only the calls to this upstream.")
@click.option("--reason", default="", help="Kept with the switch.")
def off(owner: str | None, upstream: str | None, reason: str) -> None:
    """End calls within seconds: all of them unless one is named. What is under way goes on."""
    scope, name = _which(owner, upstream)
    if scope is Scope.UPSTREAM:
        _check_upstream(name)
    switches.switch_off(scope, name, reason)
    click.echo("off")


@llm.command("on")
@click.option("--owner", metavar="EMAIL", help="Only the switch of this account.")
@click.option("--upstream", metavar="NAME", help="Only the switch of this upstream.")
def on(owner: str | None, upstream: str | None) -> None:
    """Take a switch back."""
    click.echo("on" if switches.switch_on(*_which(owner, upstream)) else "it was not off")


def _which(owner: str | None, upstream: str | None) -> tuple[Scope, str]:
    if owner and upstream:
        raise click.ClickException("name an owner or an upstream, not both")
    if owner:
        return Scope.OWNER, users.get_named(owner).id
    return (Scope.UPSTREAM, upstream) if upstream else (Scope.ALL, "")


def _check_upstream(name: str) -> None:
    """Refuse a name that the file does not have, of which no call would be ended. Where there is
    no file, or none that can be read, none is refused: those of the processes may be good."""
    path = get_settings().llm_config
    if not path:
        click.echo(f"{name} was not looked up: this host has no SVC_LLM_CONFIG", err=True)
        return
    try:
        known = load_config(path).upstreams
    except SettingsError as error:
        click.echo(f"{name} was not looked up: {error}", err=True)
        return
    if name not in known:
        raise click.ClickException(
            f"SVC_LLM_CONFIG has no upstream {name}; it has {', '.join(known)}.")


def _configuration() -> tuple[str, bool]:
    """What to say of the file, and whether something is wrong with it."""
    path = get_settings().llm_config
    if not path:
        return "none (SVC_LLM_CONFIG is empty)", False
    try:
        config = load_config(path)
    except SettingsError as error:
        return f"CANNOT BE USED: {error}", True
    names = ", ".join(f"{one.name} ({one.kind.value})" for one in config.upstreams.values())
    return f"upstreams {names}; {len(config.models)} models", False
