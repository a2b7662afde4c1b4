"""`make status`: each process of the development stack with its state, and how far the warm images
of its shapes are."""
import sys

import peewee

from bin.console import explained
from bin.stack import health
from bin.stack.running import SERVERS, Stack
from bin.stack.site import DEVELOPMENT, Site
from config.settings import Settings
from models.database import connect, database, now
from models.states import WarmImageState
from services.hosts import nodes, warm_images
from services.hosts.warm_images import WarmImageView
from services.metering.plans import size_name

# One that has just started is shown as such for some seconds, however well it works.
_UP = ("RUNNING", "STARTING")


def main() -> None:
    """Print the state; the exit code is 1 unless everything runs."""
    with explained():
        if not (DEVELOPMENT / "stack.env").exists():
            print("There is no stack here yet; `make up` makes one.")
            sys.exit(1)
        stack = Stack(Site.existing(DEVELOPMENT))
        if not stack.supervisor.running():
            print("The stack is stopped; `make up` starts it.")
            sys.exit(1)
        sys.exit(0 if show(stack) else 1)


def show(stack: Stack) -> bool:
    """Print processes, warm images and addresses of a stack that has a supervisor; True if every
    process runs and works, as far as can be seen from outside."""
    states = {name: stack.supervisor.info(name) for name in (*SERVERS, *stack.processes)}
    faults = health.list_faults(stack.site, stack.processes)
    for name, info in states.items():
        wrong = f"   BUT {faults[name]}" if name in faults else ""
        print(f"{name:12} {info['statename']:9} {info['description']}{wrong}")
    print()
    for line in list_machines(stack.settings):
        print(line)
    print(f"\nAPI {stack.api_url}   identity {stack.auth_url}   users and keys: var/dev.env")
    print("   ".join(stack.edge_urls.values()))
    return not faults and all(info["statename"] in _UP for info in states.values())


def list_machines(settings: Settings) -> list[str]:
    """A line for each warm image that this node has or is to have, and one that says how many
    stopped machines it has for the next creates and for wakes."""
    connect(settings.database_url, pool_size=1, application="status")
    try:
        views = warm_images.list_all(settings.node_id)
        stopped = nodes.read_stopped_machines(settings.node_id)
    except peewee.PeeweeException as error:
        return [f"The database does not answer ({type(error).__name__})."]
    finally:
        database.close_all()
    return ["Warm images (a shape without one boots cold):",
            *[f"  {line}" for line in [describe(view) for view in views] or ["none wanted yet"]],
            "", f"Machines that stand ready, stopped: {stopped.get('spares', 0)} for creates,"
                f" {stopped.get('kept', 0)} for wakes; processes started ahead of either:"
                f" {stopped.get('prepared', 0)}"]


def describe(view: WarmImageView) -> str:
    """One warm image: its shape, how far it is, and what comes next."""
    shape = (
        f"{size_name(view.vcpus, view.mem_mb):9} {view.vcpus:2} vCPU {view.mem_mb:6} MB "
        f" {'presets' if view.presets else '':7}  {view.state.value:7}"
    )
    present = now()
    if view.state is WarmImageState.BAKING:
        total = (
            f", {(present - view.began_at).total_seconds():.0f} s in all" if view.began_at else ""
        )
        return f"{shape} {view.phase} for {(present - view.since).total_seconds():.0f} s{total}"
    if view.state is WarmImageState.BAKED:
        return f"{shape} in {view.took_s:.0f} s" if view.took_s else shape.rstrip()
    if view.state is WarmImageState.QUEUED:
        return f"{shape} for {(present - view.since).total_seconds():.0f} s, one is baked at a time"
    again = (
        f"; tried again in {max((view.next_try_at - present).total_seconds(), 0):.0f} s"
        if view.next_try_at
        else ""
    )
    return f"{shape} {view.error}{again}"


if __name__ == "__main__":
    main()
