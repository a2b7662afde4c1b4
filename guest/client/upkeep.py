"""Has a guest look after its disk, its memory and its ports."""
from typing import Any

from guest.client.caller import AgentCaller, integer
from guest.client.deadline import Deadline
from guest.client.results import DiskUsage


class UpkeepCalls(AgentCaller):
    """The agent's `disk`, `grow_disk`, `sync`, `prepare` and `wait_port`."""

    def disk(self, timeout_s: float = 10.0) -> DiskUsage:
        """Size and usage of the guest's root file system."""
        return _disk_usage(self._call("disk", {}, Deadline(timeout_s)))

    def grow_disk(self, device_bytes: int = 0, timeout_s: float = 120.0) -> DiskUsage:
        """Let the mounted root file system fill its device, once the guest sees at least
        `device_bytes` of it.

        Open files are undisturbed; a file system that fills its device already stays as it is.
        """
        return _disk_usage(
            self._call("grow_disk", {"deviceBytes": device_bytes}, Deadline(timeout_s)))

    def sync(self, timeout_s: float = 120.0) -> None:
        """Flush the guest's file systems to its disk."""
        self._call("sync", {}, Deadline(timeout_s))

    def prepare(self, timeout_s: float = 120.0) -> int:
        """Get the guest's memory ready to be saved as a warm image; returns how many bytes are
        free and zero."""
        return integer(self._call("prepare", {}, Deadline(timeout_s)), "freeBytes")

    def wait_port(self, port: int, timeout_s: float, grace_s: float = 5.0) -> bool:
        """True as soon as something in the guest listens on `port`, false if nothing did within
        `timeout_s`; the call ends `grace_s` after that at the latest."""
        request = {"port": port, "timeoutMs": int(timeout_s * 1000)}
        return self._call("wait_port", request, Deadline(timeout_s + grace_s)).get("open") is True


def _disk_usage(reply: dict[str, Any]) -> DiskUsage:
    return DiskUsage(total_bytes=integer(reply, "totalBytes"),
                     used_bytes=integer(reply, "usedBytes"),
                     available_bytes=integer(reply, "availableBytes"))
