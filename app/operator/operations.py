"""What an operator asks about operations: which there are, and what one of them is waiting for."""
import dataclasses

import click
import redis

from app.operator.output import as_json, print_json, print_rows
from config.settings import Settings, get_settings
from services.errors import NotFound
from services.operator import explain as explanations
from services.operator import explain_deploys, listings
from services.operator.listings import OperationFilter, OperationReport

# How long (s) the broker may take to say how long a queue is.
_PATIENCE_S = 2.0


@click.command("operation-list")
@click.option("--open", "only_open", is_flag=True, help="Only those not finished.")
@click.option("--failed", "only_failed", is_flag=True, help="Only those that failed.")
@click.option("--sandbox", "sandbox_id", help="Only those of this sandbox.")
@click.option("--node", "node_id", help="Only those of this node.")
@click.option("--before", type=click.IntRange(1, 2**62),
              help="Only those older than this number: the next page.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 10_000))
@as_json
def operation_list(
    only_open: bool, only_failed: bool, sandbox_id: str | None, node_id: str | None,
    before: int | None, limit: int, machine: bool,
) -> None:
    """Show operations, newest first."""
    wanted = OperationFilter(sandbox_id, node_id, only_open=only_open, only_failed=only_failed,
                             before=before)
    found = listings.list_operations(wanted, limit)
    print_rows(found, {
        "OPERATION": lambda row: row.id,
        "SANDBOX": lambda row: row.sandbox_id,
        "KIND": lambda row: row.kind,
        "STATE": lambda row: row.state,
        "NODE": lambda row: row.node_id,
        "TRIES": lambda row: row.attempts,
        "ASKED FOR": lambda row: row.created_at,
        "BY": lambda row: row.requested_by,
        "TOOK": _took,
        "REMARK": lambda row: row.operator_error or row.error or row.note,
    }, machine=machine)
    if len(found) == limit and not machine:
        click.echo(f"more: --before {found[-1].id}")


def _took(row: OperationReport) -> str:
    return f"{(row.finished_at - row.created_at).total_seconds():.1f} s" if row.finished_at else ""


@click.command("explain")
@click.argument("subject")
@as_json
def explain(subject: str, machine: bool) -> None:
    """Say what SUBJECT is waiting for: a sandbox's id, an operation's number, an app's slug (its
    last deploy) or <slug>@<version>."""
    settings = get_settings()

    def length(queue: str) -> int | None:
        return _length(settings, queue)

    try:
        found = explanations.explain(settings, subject, length)
    except NotFound:
        found = explain_deploys.explain(settings, subject, length)
    if machine:
        print_json(dataclasses.asdict(found))
        return
    for sentence in found.sentences:
        click.echo(sentence)


def _length(settings: Settings, queue: str) -> int | None:
    broker = redis.Redis.from_url(
        settings.redis_url, socket_timeout=_PATIENCE_S, socket_connect_timeout=_PATIENCE_S
    )
    try:
        # Celery keeps a queue in a list of its name.
        return int(broker.llen(queue))
    except redis.RedisError:
        return None
    finally:
        broker.close()


COMMANDS = (operation_list, explain)
