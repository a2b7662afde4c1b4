"""The data road as the services see it: the node worker's agent client behind
`services.protocols.Guest`."""
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict

from guest.agent.protocol import UNAUTHORIZED
from guest.client.agent_client import AgentClient
from guest.client.errors import AgentError, AgentRefused, AgentUnreachable
from services.guest_calls.execs import OUTPUT_CAP_BYTES
from services.protocols import (
    DiskUsage,
    ExecOutcome,
    ExecRequest,
    Guest,
    GuestRefused,
    GuestUnreachable,
)


class AgentGuests:
    """Connects to guest agents; implements `services.protocols.Guests`."""

    def connect(self, address: str, port: int, token: str) -> Guest:
        """The guest behind a forwarded port; opens nothing yet."""
        return AgentGuest(AgentClient(address, port, token))


class AgentGuest:
    """One guest; implements `services.protocols.Guest`."""

    def __init__(self, agent: AgentClient) -> None:
        self._agent = agent

    def run(self, request: ExecRequest, *, wanted: Callable[[], bool]) -> ExecOutcome:
        """Run a command, giving it up as soon as `wanted` says no."""
        with _in_our_words():
            result = self._agent.exec(
                None if request.argv is None else list(request.argv),
                shell=request.shell,
                cwd=request.cwd,
                env=dict(request.env),
                timeout_ms=request.timeout_ms,
                detached=request.detached,
                cap_bytes=OUTPUT_CAP_BYTES,
                on_idle=_unless_unwanted(wanted),
            )
        return ExecOutcome(**asdict(result))

    def write_file(self, path: str, content: Iterable[bytes], *, mode: int,
                   size_bytes: int) -> None:
        """Replace a file in one step."""
        with _in_our_words():
            self._agent.write_file(path, content, mode, size_bytes=size_bytes)

    def upload_file(
        self,
        path: str,
        content: Iterable[bytes],
        *,
        size_bytes: int | None,
        timeout_s: float,
        wanted: Callable[[], bool],
    ) -> int:
        """Replace a file in one step by a stream; returns its size."""
        with _in_our_words():
            return self._agent.write_file(path, content, size_bytes=size_bytes, timeout_s=timeout_s,
                                          on_idle=_unless_unwanted(wanted))

    def read_file(self, path: str, *, cap_bytes: int) -> bytes:
        """A file's bytes."""
        with _in_our_words():
            return self._agent.read_file(path, cap_bytes)

    def disk(self) -> DiskUsage:
        """Size and usage of the root file system."""
        with _in_our_words():
            return DiskUsage(**asdict(self._agent.disk()))

    def grow_disk(self, device_bytes: int) -> DiskUsage:
        """Let the root file system fill its device."""
        with _in_our_words():
            return DiskUsage(**asdict(self._agent.grow_disk(device_bytes)))


def _unless_unwanted(wanted: Callable[[], bool]) -> Callable[[], None]:
    def on_idle() -> None:
        if not wanted():
            raise AgentUnreachable("the sandbox was put to sleep or stopped meanwhile")

    return on_idle


@contextmanager
def _in_our_words() -> Iterator[None]:
    try:
        yield
    except AgentRefused as refusal:
        if refusal.code == UNAUTHORIZED:
            # Our secret and the guest's differ: nothing that a caller could mend.
            raise GuestUnreachable("the guest does not take our token") from refusal
        raise GuestRefused(refusal.code, refusal.message) from refusal
    except AgentError as error:
        raise GuestUnreachable(str(error)) from error
