"""What an operator asks about disks, and how snapshots are deleted: part of `python -m
app.operator`."""
import dataclasses
from typing import Any

import click

from app.deps import make_deps
from app.operator.output import as_json, megabytes, moment, print_json
from config.settings import get_settings
from models.snapshots import Snapshot
from services.accounts import users
from services.hosts import storage_use
from services.hosts.storage_use import Item, NodeUse, OwnerUse
from services.snapshots import deletion, find


@click.command("disk-usage")
@click.argument("email", required=False)
@as_json
def disk_usage(email: str | None, machine: bool) -> None:
    """Show what each owner occupies, or each sandbox and snapshot of EMAIL, the largest first.

    A disk layer that several need counts once: for the one that made it, while it exists.
    """
    if email is not None:
        items = storage_use.items_of(users.get_named(email))
        _show([dataclasses.asdict(item) for item in items], map(_item_line, items),
              machine=machine)
        return
    owners, nodes = storage_use.by_owner(), storage_use.by_node()
    images = storage_use.store_images()
    if machine:
        print_json({
            "owners": [owner.to_json() for owner in owners],
            "nodes": [dataclasses.asdict(node) for node in nodes],
            "store_images": {image.key: image.size_bytes for image in images},
        })
        return
    click.echo(f"{'owner':40} {'sandboxes':>12} {'snapshots':>12} {'store':>12} {'total':>12}")
    for owner in owners:
        click.echo(_owner_line(owner))
    for node in nodes:
        click.echo(_node_line(node))
    for image in images:
        click.echo(f"store: image {image.key} {megabytes(image.size_bytes)}")


@click.command("snapshot-list")
@click.argument("email")
@as_json
def snapshot_list(email: str, machine: bool) -> None:
    """Show the snapshots of EMAIL, the newest first, and what is wrong with any."""
    rows = find.list_of(users.get_named(email))
    _show([_snapshot_json(row) for row in rows], map(_snapshot_line, rows), machine=machine)


@click.command("snapshot-delete")
@click.argument("snapshot_id")
def snapshot_delete(snapshot_id: str) -> None:
    """Delete a snapshot, here and in the object store, unless something still needs it."""
    deletion.delete(make_deps(get_settings()), snapshot_id)
    click.echo("deleting")


COMMANDS = (disk_usage, snapshot_list, snapshot_delete)


def _show(records: list[dict[str, Any]], lines: Any, *, machine: bool) -> None:
    if machine:
        print_json(records)
    else:
        for line in lines:
            click.echo(line)


def _owner_line(owner: OwnerUse) -> str:
    sizes = (owner.sandbox_bytes, owner.snapshot_bytes, owner.store_bytes, owner.total_bytes)
    return f"{owner.email:40} {' '.join(f'{megabytes(size):>12}' for size in sizes)}"


def _node_line(node: NodeUse) -> str:
    sizes = {"sandboxes": node.sandbox_bytes, "snapshots": node.snapshot_bytes, **node.other}
    listed = ", ".join(f"{name} {megabytes(size)}" for name, size in sizes.items())
    when = moment(node.sampled_at) if node.sampled_at else "never"
    return f"node {node.node_id}: {listed}; sampled {when}"


def _item_line(item: Item) -> str:
    return (
        f"{item.kind:8} {item.id} {item.node_id} {megabytes(item.size_bytes):>12} store"
        f" {megabytes(item.store_bytes):>12}"
    )


def _snapshot_json(row: Snapshot) -> dict[str, Any]:
    return {
        "id": row.id,
        "kind": row.kind,
        "state": row.state,
        "node_id": row.node_id,
        "source_sandbox_id": row.source_sandbox_id,
        "size_bytes": row.size_bytes,
        "store_bytes": row.tarball_size_bytes if row.uploaded_to_store else 0,
        "created_at": row.created_at,
        "error": row.upload_error or row.error,
    }


def _snapshot_line(row: Snapshot) -> str:
    stored = "uploaded" if row.uploaded_to_store else "not uploaded"
    wrong = row.upload_error or row.error
    line = (
        f"{row.id} {row.kind} {row.state} {stored} {row.node_id} {megabytes(row.size_bytes)}"
        f" {moment(row.created_at)}"
    )
    return f"{line}: {wrong}" if wrong else line
