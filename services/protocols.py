"""What the rules need from the outside world, as small interfaces that adapters implement and
composition roots wire."""
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from config.settings import Settings
from guest.client.results import DiskUsage, ExecResult


class QueueUnavailable(Exception):
    """The broker did not take the message in time; the outbox row stays and the relay sends it
    later."""


class Queue(Protocol):
    """Where messages go. A message is a hint: losing one costs time, never data."""

    def publish(self, queue: str, job: str, payload: Mapping[str, Any]) -> None:
        """Hand one message to the broker; raises QueueUnavailable."""


@dataclass(frozen=True)
class ExecRequest:
    """A command for a guest. `argv` runs a program directly; `shell` a line through /bin/sh;
    exactly one is set."""

    argv: tuple[str, ...] | None
    shell: str | None
    cwd: str | None
    env: Mapping[str, str]
    timeout_ms: int
    detached: bool


class GuestShell(Protocol):
    """A shell that runs in a guest; `guest.client.open_shell.OpenShell` is one. One thread reads
    while another sends; both wait for as long as the guest does."""

    exit_code: int | None
    """How it ended; None while it runs, and for ever if it was hung up."""

    def receive(self, timeout_s: float | None = None) -> bytes | None:
        """The next piece of output; empty if there was none in `timeout_s`, None once the shell has
        ended or was hung up."""

    def send(self, content: bytes) -> None:
        """Type these bytes."""

    def resize(self, cols: int, rows: int) -> None:
        """Give the terminal another size; raises ValueError for one that no terminal has."""

    def hang_up(self) -> None:
        """End it, from any thread: whoever waits in another call returns."""

    def close(self) -> None:
        """Hang up, and free what it holds."""


class Guest(Protocol):
    """The data road to one guest; `guest.client.agent_client.AgentClient` is one. The guest is
    hostile: all calls have deadlines and size caps.

    Raises what `guest.client.errors` lists.
    """

    def exec(self, argv: Sequence[str] | None = None, *, shell: str | None, cwd: str | None,
             env: Mapping[str, str], timeout_ms: int, detached: bool, cap_bytes: int,
             wanted: Callable[[], bool], keep: bool = ...,
             take: Callable[[int], bool]) -> ExecResult:
        """Run a command and wait for it (or, detached, only for its start).

        `wanted` is asked about once a second while the guest is silent; AgentUnreachable as soon
        as it says False. `take` is asked for room for each piece of output; once it says False,
        the output is cut there, and marked. `keep` leaves the connection open for the next such
        call, which comes soon, or for `close`.
        """

    def close(self) -> None:
        """Close the connection that was kept, if there is one."""

    def write_file(self, path: str, content: bytes | Iterable[bytes], mode: int = ..., *,
                   size_bytes: int | None = None, timeout_s: float = ...,
                   wanted: Callable[[], bool] | None = None) -> int:
        """Replace a file in one step; returns its size.

        `content` must add up to `size_bytes`, if that is known, or the old file stays. What
        `content` raises breaks the write off. `wanted` is as for `exec`.
        """

    def stream_file(self, path: str, max_bytes: int, timeout_s: float,
                    wanted: Callable[[], bool]) -> Iterator[bytes]:
        """A file's bytes in pieces, at most `max_bytes` (AgentRefused `too_large` beyond). `wanted`
        is as for `exec`."""

    def open_shell(self, cols: int, rows: int, *, cwd: str | None,
                   env: Mapping[str, str] | None, patient: bool) -> GuestShell:
        """Start the login shell of the guest's user in `cwd`, on a terminal of this size.
        `patient` dials again for some seconds if the guest is just waking up."""

    def disk(self) -> DiskUsage:
        """Size and usage of the root file system."""

    def grow_disk(self, device_bytes: int) -> DiskUsage:
        """Let the root file system fill its device, once the guest sees `device_bytes` of it."""


@dataclass(frozen=True)
class Deps:
    """What a process wires together and the use cases take."""

    settings: Settings
    queue: Queue
    # the guest whose agent a node forwards: address of the node, its port, the agent's token
    connect_guest: Callable[[str, int, str], Guest]
