"""Says in the log of a node when its clock and the database's are no longer the same, and when they
are again.

By the database's clock all see which nodes report. Much else is written by the clock of one host
and read by that of another: when something is due, when a message is too old.
"""
import logging

log = logging.getLogger(__name__)
_APART_S = 5.0


class ClockWatch:
    """What has been said last about this host's clock."""

    def __init__(self) -> None:
        self._side = 0

    def note(self, ahead_s: float) -> None:
        """This host's clock is so many seconds ahead of the database's, or behind if negative; say
        so unless that was said already."""
        side = 0 if abs(ahead_s) <= _APART_S else 1 if ahead_s > 0 else -1
        if side == self._side:
            return
        self._side = side
        if side:
            log.warning("this host's clock is %.0f s %s the database's; have the clocks of all"
                        " hosts synchronised", abs(ahead_s), "ahead of" if side > 0 else "behind")
        else:
            log.info("this host's clock and the database's are the same again")
