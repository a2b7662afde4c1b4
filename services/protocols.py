"""What the rules need from the outside world, as small interfaces that adapters implement and
composition roots wire."""
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from config.settings import Settings


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


@dataclass(frozen=True)
class ExecOutcome:
    """What became of a command; output is bytes as the guest wrote them, at most the cap each."""

    stdout: bytes
    stderr: bytes
    exit_code: int
    timed_out: bool = False
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    pid: int | None = None
    log_path: str | None = None


@dataclass(frozen=True)
class DiskUsage:
    """The root file system of a guest, in bytes, as the guest says."""

    total_bytes: int
    used_bytes: int
    available_bytes: int


class GuestUnreachable(Exception):
    """The guest did not answer in time or broke the connection."""


class GuestRefused(Exception):
    """The guest understood and said no; `code` is one of the agent's failure codes."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class Guest(Protocol):
    """The data road to one guest. All calls have deadlines and size caps; the guest is hostile.

    Raises GuestUnreachable, GuestRefused.
    """

    def run(self, request: ExecRequest, *, wanted: Callable[[], bool]) -> ExecOutcome:
        """Run a command and wait for it (or, detached, only for its start).

        `wanted` is asked about once a second while the guest is silent; GuestUnreachable as soon as
        it says False.
        """

    def write_file(self, path: str, content: Iterable[bytes], *, mode: int,
                   size_bytes: int) -> None:
        """Replace a file in one step; `content` must add up to `size_bytes` or the old file
        stays."""

    def upload_file(
        self,
        path: str,
        content: Iterable[bytes],
        *,
        size_bytes: int | None,
        timeout_s: float,
        wanted: Callable[[], bool],
    ) -> int:
        """As `write_file`, for content that comes slowly and whose size may not be known; returns
        its size.

        What `content` raises breaks the upload off. `wanted` is as for `run`.
        """

    def read_file(self, path: str, *, cap_bytes: int) -> bytes:
        """A file's bytes, at most `cap_bytes` (GuestRefused `too_large` beyond)."""

    def disk(self) -> DiskUsage:
        """Size and usage of the root file system."""

    def grow_disk(self, device_bytes: int) -> DiskUsage:
        """Let the root file system fill its device, once the guest sees `device_bytes` of it."""


class Guests(Protocol):
    """Gives the data road to a guest."""

    def connect(self, address: str, port: int, token: str) -> Guest:
        """The guest whose agent the host `address` forwards at `port`; opens nothing yet."""


@dataclass(frozen=True)
class Deps:
    """What a process wires together and the use cases take."""

    settings: Settings
    queue: Queue
    guests: Guests
