"""What a guest agent answers, as plain values; this module opens nothing, so that rules may import
it."""
from dataclasses import dataclass


@dataclass(frozen=True)
class ExecResult:
    """What became of a command; output is bytes as the guest wrote them, at most the cap each.

    Of a detached one only `exit_code` (of its start), `pid` and `log_path` say anything.
    """

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


@dataclass(frozen=True)
class Pong:
    """Who answered: `boot_id` changes when the guest reboots, `adopted` is the sandbox id it was
    given, if any."""

    agent_version: str
    boot_id: str
    adopted: str | None
