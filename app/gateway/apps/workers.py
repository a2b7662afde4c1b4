"""Tells the workers of this host's nginx where apps are, over a connection that each of them keeps,
and hears how many of their requests are in flight.

A worker goes by what it was told last, and no longer than it was told it may. Lines to it:

    all                                   what follows replaces all that it knows
    route <name> <ip> <port> <sandbox>    requests for the name go there
    held <name>                           they wait
    gone <name>                           they go to the gateway
    sync <number> <time>                  answer; and this counts until then

It answers each `sync` with a line: the number, then `<sandbox>=<requests in flight>` for each
sandbox that it has sent requests to since its last answer, or that owes it one.
"""
import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from app.gateway.apps.known import VALID_S, Known
from app.gateway.reach_port import Link
from services.deploys.apps.process_facts import APP_PORT
from services.deploys.edges.routes import Route
from services.previews.lookup import Target

_DRAINING_S, _ANSWER_S = 0.02, 3.0


@dataclass(eq=False)
class Worker:
    """A worker of nginx: which read its last answer was to, and what was in flight then."""

    told: dict[str, str] | None = None
    serial: int = 0
    in_flight: dict[str, int] = field(default_factory=dict)


class Workers:
    """The workers that are connected. `note_used` is told of sandboxes that they have sent requests
    to."""

    def __init__(self, known: Known, note_used: Callable[[Iterable[str]], object]) -> None:
        self._known = known
        self._note_used = note_used
        self._connected: dict[str, Worker] = {}
        # When the last worker that is gone, or that a gateway before this one has told, may go by
        # nothing any more.
        self._quiet_at: dict[str, float] = {"": time.monotonic() + VALID_S}

    async def serve(self, edge: Link, pid: str) -> None:
        """Keep a worker told until it goes."""
        worker = Worker()
        self._connected[pid] = worker
        self._quiet_at.pop(pid, None)
        try:
            while await self._tell(edge, worker):
                await self._known.change(
                    _DRAINING_S if self._known.routes.drains else self._known.round_s)
        finally:
            if self._connected.get(pid) is worker:
                del self._connected[pid]
                self._quiet_at[pid] = time.monotonic() + VALID_S

    async def _tell(self, edge: Link, worker: Worker) -> bool:
        """Send what has changed, and take the answer; False once the worker has gone."""
        serial, wanted = self._known.serial, _lines(self._known.routes.by_name)
        before = worker.told if worker.told is not None else {}
        lines = [line for name, line in wanted.items() if before.get(name) != line]
        lines += [f"gone {name}" for name in before.keys() - wanted.keys()]
        if worker.told is None:
            lines.insert(0, "all")
        lines.append(f"sync {serial} {self._known.valid_until:.3f}")
        edge.writer.write("".join(f"{line}\n" for line in lines).encode())
        await edge.writer.drain()
        answer = await asyncio.wait_for(edge.reader.readline(), _ANSWER_S)
        if not answer.endswith(b"\n"):
            return False
        worker.told = wanted
        _, *counts = answer.decode().split()
        said = {sandbox: int(count) for sandbox, _, count in
                (each.partition("=") for each in counts)}
        self._note_used(said)
        worker.in_flight = {sandbox: count for sandbox, count in said.items() if count}
        worker.serial = serial
        return True

    def are_without(self, sandbox_id: str, since: int) -> bool:
        """True if no worker has a request to the sandbox in flight, and all of them have heard what
        the read of that number said."""
        present = time.monotonic()
        self._quiet_at = {pid: at for pid, at in self._quiet_at.items() if at > present}
        return not self._quiet_at and all(
            worker.serial >= since and sandbox_id not in worker.in_flight
            for worker in self._connected.values())


def _lines(routes: dict[str, Route]) -> dict[str, str]:
    """What a worker is told of each name; nothing of one whose sandbox does not run."""
    lines = {}
    for name, route in routes.items():
        if route.is_held:
            lines[name] = f"held {name}"
        elif (target := target_of(route)).is_up:
            lines[name] = f"route {name} {target.address} {target.host_port} {target.sandbox_id}"
    return lines


def target_of(route: Route) -> Target:
    """The port of its sandbox that an app listens on."""
    return Target(route.sandbox_id, route.owner_id, route.status, route.task, route.op_seq,
                  route.address, route.host_port, APP_PORT)
