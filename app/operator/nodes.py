"""What an operator does with VM hosts, their warm images and the plans: look, open and close."""
import click

from app.operator.output import as_json, print_rows
from config.settings import get_settings
from services.errors import NotFound
from services.hosts import nodes, warm_images
from services.metering.plans import size_name
from services.operator import listings
from services.operator.listings import NodeReport, PlanReport


@click.command("node-list")
@as_json
def node_list(machine: bool) -> None:
    """Show every VM host: whether it reports and takes sandboxes, what it has promised, which sizes
    have a warm image."""
    print_rows(
        listings.list_nodes(get_settings()),
        {
            "NODE": lambda node: node.id,
            "ADDRESS": lambda node: node.address,
            "STATE": _state,
            "CPUS USED": lambda node: f"{node.used_cpus:.1f}",
            "VCPUS": lambda node: f"{node.used_vcpus}/{node.most_vcpus}",
            "MEMORY MB": lambda node: f"{node.used_mem_mb}/{node.most_mem_mb}",
            "DISK MB": _disk,
            "SANDBOXES": lambda node: ", ".join(
                f"{count} {status}" for status, count in sorted(node.sandboxes.items())
            ),
            "STOPPED": lambda node: ", ".join(
                f"{count} {kind}" for kind, count in sorted(node.stopped_machines.items()) if count
            ),
            "WARM SIZES": lambda node: ", ".join(node.warm_sizes),
            "RUNS": lambda node: ", ".join(filter(None, node.host_tuple.values())),
            "LANES": lambda node: ", ".join(node.lanes or ()),
        },
        machine=machine,
    )


def _state(node: NodeReport) -> str:
    alive = "alive" if node.alive else f"silent for {node.silent_s:.0f} s"
    restored = node.policy_restored_at
    changed = f", packet policy restored {restored:%Y-%m-%d %H:%M}" if restored else ""
    drains = f", draining until {node.draining_until:%H:%M}" if node.draining_until else ""
    return f"{alive}, {'open' if node.accepting else 'closed'}{drains}{changed}"


def _disk(node: NodeReport) -> str:
    if node.disk_free_mb is None:
        return ""
    short = ", takes nothing new" if node.disk_free_mb < node.disk_floor_mb else ""
    return f"{node.disk_free_mb} of {node.disk_mb} free{short}"


@click.command("node-open")
@click.argument("node_id")
def node_open(node_id: str) -> None:
    """Let NODE_ID take sandboxes again, also if it was drained."""
    _set(node_id, accepting=True)


@click.command("node-close")
@click.argument("node_id")
def node_close(node_id: str) -> None:
    """Keep new sandboxes and wakes away from NODE_ID; those that run there run on
    (`nodeworker.commands.drain` hibernates them)."""
    _set(node_id, accepting=False)


@click.command("node-forget-directory")
@click.argument("node_id")
def node_forget_directory(node_id: str) -> None:
    """Let NODE_ID begin anew in the directory that it finds at its next start. The sandboxes whose
    files are not there are then stopped for good."""
    if not nodes.forget_directory(node_id):
        raise NotFound(f"There is no node {node_id}; `node-list` shows those there are.")
    click.echo("forgotten")


def _set(node_id: str, *, accepting: bool) -> None:
    if not nodes.set_accepting(node_id, accepting=accepting):
        raise NotFound(f"There is no node {node_id}; `node-list` shows those there are.")
    click.echo("open" if accepting else "closed")


@click.command("bake-list")
@as_json
def bake_list(machine: bool) -> None:
    """Show the warm images of every VM host: baked, being baked, waiting, or failed and why."""
    print_rows(
        warm_images.list_all(),
        {
            "NODE": lambda bake: bake.node_id,
            "SIZE": lambda bake: (
                f"{size_name(bake.vcpus, bake.mem_mb)} ({bake.vcpus} vCPU, {bake.mem_mb} MB)"
            ),
            "PRESETS": lambda bake: "yes" if bake.presets else "",
            "STATE": lambda bake: bake.state.value,
            "PHASE": lambda bake: bake.phase,
            "SINCE": lambda bake: bake.since,
            "TOOK": lambda bake: f"{bake.took_s:.0f} s" if bake.took_s else "",
            "TRIES": lambda bake: bake.attempts,
            "NEXT TRY": lambda bake: bake.next_try_at,
            "ERROR": lambda bake: bake.error,
        },
        machine=machine,
    )


@click.command("plan-list")
@as_json
def plan_list(machine: bool) -> None:
    """Show the plans and the machines each includes, the default first (`user-plan` puts an account
    on one)."""
    print_rows(listings.list_plans(), {"PLAN": lambda plan: plan.plan, "MACHINES": _machines},
               machine=machine)


def _machines(plan: PlanReport) -> str:
    return ", ".join(f"{size.name} ({size.vcpus} vCPU, {size.mem_mb} MB)"
                     for size in plan.sizes) or "none"


COMMANDS = (node_list, node_open, node_close, node_forget_directory, bake_list, plan_list)
