"""Decides when a guest sends too many frames for what is in them.

A frame costs the host about as much as a kilobyte does, whatever it holds, so a guest that sends
empty frames, or one byte in each, could keep a process of the host busy for ever. Our agent sends
what it reads, up to 64 KiB a frame; a program that writes byte by byte makes small frames, which is
why there is an allowance for them.
"""
import time

from guest.agent.protocol import FAILURE, RESULT
from guest.client.errors import AgentProtocolError

# The last frame of a reply is JSON that we build; our agent's is below 5 KiB.
RESULT_MAX_BYTES = 64 * 1024
FRAMES_FREE = 10_000
BYTES_PER_FRAME = 64
FRAMES_PER_S = 1000


class Allowance:
    """So many at once, and so many a second after that; what is not used is not saved beyond the
    first."""

    def __init__(self, most: float, per_s: float) -> None:
        self._most = self._left = most
        self._per_s = per_s
        self._looked_at = time.monotonic()

    def spend(self, cost: float) -> bool:
        """Take `cost`, negative to give; false if there was not so much left."""
        present = time.monotonic()
        earned = (present - self._looked_at) * self._per_s - cost
        self._looked_at = present
        self._left = min(self._left + earned, self._most)
        return self._left >= 0


class StreamBudget:
    """Counts the frames of a stream without an end: what a guest may send too much is the same
    after a week of it, and after gigabytes."""

    def __init__(self) -> None:
        self._allowance = Allowance(FRAMES_FREE, FRAMES_PER_S)

    def count(self, kind: int, length: int) -> None:
        """As `FrameBudget.count`."""
        if _is_counted(kind, length) and not self._allowance.spend(1 - length / BYTES_PER_FRAME):
            raise AgentProtocolError("the guest agent sent too many frames with too little in them")


class FrameBudget:
    """Counts the frames of one reply."""

    def __init__(self) -> None:
        self._frames = self._bytes = 0
        self._began = time.monotonic()

    def count(self, kind: int, length: int) -> None:
        """Take note of a frame; raises AgentProtocolError for one that no agent of ours sends, or
        when there have been too many."""
        if not _is_counted(kind, length):
            return
        self._frames += 1
        self._bytes += length
        allowed = FRAMES_FREE + self._bytes // BYTES_PER_FRAME
        if self._frames > allowed:
            allowed += int((time.monotonic() - self._began) * FRAMES_PER_S)
            if self._frames > allowed:
                raise AgentProtocolError(
                    f"the guest agent sent {self._frames} frames with {self._bytes} bytes in all")


def _is_counted(kind: int, length: int) -> bool:
    """False for the last frame of a reply; raises AgentProtocolError for a frame that no agent of
    ours sends."""
    if kind in (RESULT, FAILURE):
        if length > RESULT_MAX_BYTES:
            raise AgentProtocolError(f"the guest agent sent a result of {length} bytes")
        return False
    if not length:
        raise AgentProtocolError("the guest agent sent an empty frame")
    return True
