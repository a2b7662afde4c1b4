"""What an operator does with apps: lists them, sees what they occupy, brings an earlier version of
one back, removes one."""
from collections import Counter

import click

from app.deps import make_deps
from app.operator.output import as_json, megabytes, print_json, print_rows
from config.settings import get_settings
from objects.store import ObjectStore, StoreUnavailable
from services.deploys import app_removal, rollback
from services.deploys.apps import find
from services.deploys.begin_run import RollbackRequest
from services.deploys.edges import staging
from services.deploys.version_prefixes import APPS
from services.errors import Unavailable
from services.operator import deploys
from services.operator.deploys import AppReport

_RUN_ID = "operator"
# Longer than an edge counts as at work after its last round: all that still do have caught up then.
_EDGES_S = 15.0


@click.command("deploy-list")
@click.argument("email", required=False)
@click.option("--open", "only_open", is_flag=True, help="Only apps with a deploy under way.")
@click.option("--failed", "only_failed", is_flag=True, help="Only apps whose last deploy failed.")
@click.option("--limit", default=100, show_default=True, type=click.IntRange(1, 10_000))
@click.option("--offset", default=0, type=click.IntRange(0, 2**62))
@as_json
def deploy_list(email: str | None, only_open: bool, only_failed: bool, limit: int, offset: int,
                machine: bool) -> None:
    """Show the apps of everybody, or of the account EMAIL, newest first, and the last deploy of
    each."""
    found = deploys.list_apps(email, only_open=only_open, only_failed=only_failed, limit=limit,
                              offset=offset)
    print_rows(found, {
        "APP": lambda row: row.slug,
        "OWNER": lambda row: row.owner,
        "STATUS": lambda row: row.status,
        "SERVES": _serves,
        "SANDBOX": lambda row: row.sandbox_id,
        "DEPLOY": lambda row: f"v{row.run.version} {row.run.state}",
        "STEP": lambda row: row.run.step if row.run.finished_at is None else "",
        "NODE": lambda row: row.run.node_id,
        "ASKED FOR": lambda row: row.run.created_at,
        "REMARK": lambda row: _first_line(row.run.operator_error or row.run.error),
    }, machine=machine)
    if len(found) == limit and not machine:
        click.echo(f"more: --offset {offset + limit}")


def _serves(row: AppReport) -> str:
    if row.serving_version is None:
        return ""
    return f"v{row.serving_version} {'files' if row.static else 'process'}"


def _first_line(text: str | None) -> str:
    return text.splitlines()[0] if text else ""


@click.command("deploy-rollback")
@click.argument("slug")
@click.option("--version", type=click.IntRange(1, 2**31 - 1),
              help="The version to bring back; else the one that was served before.")
@click.option("--wait", "wait_s", default=900.0, show_default=True, type=click.FloatRange(0, 7200),
              help="Seconds to wait for its end; it goes on afterwards.")
def deploy_rollback(slug: str, version: int | None, wait_s: float) -> None:
    """Bring an earlier version of the app SLUG back, whoever owns it; its data stays as it is."""
    deps = make_deps(get_settings())
    begun = rollback.roll_back(deps, find.get_owner(slug), RollbackRequest(slug, _RUN_ID, version))
    ended = find.wait_for(deps, begun, wait_s)
    if ended is None:
        click.echo(f"version {begun.restores_version} is being built again")
    elif ended.error:
        raise click.ClickException(ended.error)
    else:
        click.echo(f"version {begun.restores_version} is back")


@click.command("deploy-remove")
@click.argument("slug")
def deploy_remove(slug: str) -> None:
    """Remove the app SLUG for good, whoever owns it, also if that account is shut out; its address
    answers 404 when this returns."""
    app_removal.remove(make_deps(get_settings()), find.get_owner(slug), slug)
    staging.wait_until_caught_up(_EDGES_S)
    click.echo("removed")


@click.command("deploy-disk-usage")
@as_json
def deploy_disk_usage(machine: bool) -> None:
    """Show what each app occupies in the object store, and the sandbox that serves it on its node,
    the largest first."""
    stored: Counter[str] = Counter()
    try:
        for each in ObjectStore(get_settings()).list_objects(f"{APPS}/"):
            stored[each.key.split("/")[1]] += each.size_bytes
    except StoreUnavailable as error:
        raise Unavailable("The object store does not answer.") from error
    found = deploys.use_by_app(stored)
    if machine:
        print_json([use.to_json() for use in found])
        return
    print_rows(found, {
        "APP": lambda use: use.slug or "(deleted)",
        "ID": lambda use: use.app_id,
        "STORE": lambda use: megabytes(use.store_bytes),
        "SANDBOX": lambda use: megabytes(use.sandbox_bytes),
        "TOTAL": lambda use: megabytes(use.total_bytes),
    }, machine=False)


COMMANDS = (deploy_list, deploy_rollback, deploy_remove, deploy_disk_usage)
