"""What an operator does with people's sandboxes: look at an owner's, stop one."""
import dataclasses

import click

from app.deps import make_deps
from app.operator.output import as_json, print_rows
from config.settings import get_settings
from models.states import SandboxStatus
from services.operator import listings
from services.sandboxes import lifecycle

_STATUS = click.Choice([status.value for status in SandboxStatus])


@click.command("sandbox-list")
@click.argument("email")
@click.option("--status", type=_STATUS, help="Only those with this status.")
@click.option("--all", "stopped_too", is_flag=True, help="Stopped ones too.")
@click.option("--limit", default=100, show_default=True, type=click.IntRange(1, 10_000))
@click.option("--offset", default=0, type=click.IntRange(0, 2**62))
@as_json
def sandbox_list(
    email: str, status: str | None, stopped_too: bool, limit: int, offset: int, machine: bool
) -> None:
    """Show the sandboxes of the account EMAIL (its address or id), newest first."""
    found = listings.list_sandboxes(email, status=status, stopped_too=stopped_too, limit=limit,
                                    offset=offset)
    print_rows(found, {
        "SANDBOX": lambda row: row.id,
        "STATUS": lambda row: row.status,
        "TASK": lambda row: row.task,
        "NODE": lambda row: row.node_id,
        "SIZE": lambda row: f"{row.size} ({row.vcpus} vCPU, {row.mem_mb} MB)",
        "CREATED": lambda row: row.created_at,
        "LAST ACTIVE": lambda row: row.last_active_at,
        "REMARK": lambda row: row.error or row.note,
    }, machine=machine)
    if len(found) == limit and not machine:
        click.echo(f"more: --offset {offset + limit}")


@click.command("sandbox-stop")
@click.argument("sandbox_id")
@click.option("--wait", "wait_s", default=60.0, show_default=True, type=click.FloatRange(0, 3600),
              help="Seconds to wait for its end; it goes on afterwards.")
def sandbox_stop(sandbox_id: str, wait_s: float) -> None:
    """Tear a sandbox down for good, whoever owns it, as its owner's delete would."""
    deps = make_deps(dataclasses.replace(get_settings(), operation_wait_s=wait_s))
    click.echo(lifecycle.force_stop(deps, sandbox_id, requested_by="operator").status)


COMMANDS = (sandbox_list, sandbox_stop)
