"""How a handler waits for a guest, and a step of a deploy for what it needs: it does not, it raises
NotYet, and is run again later.

The operation, or run, is a row meanwhile, that no worker holds. A handler finds in its claim what
it waited for and for how long, all its runs together, and decides when that is enough; how soon it
is run again says `handlers/poll_interval.py`.
"""
from services.operations.claims import Claim

# All that one run of a handler says to a guest has this long, and a little more for a guest that
# has been slow for a while: an honest one may need it.
_TALK_S, _LONGEST_TALK_S = 2.0, 5.0


class NotYet(Exception):
    """The guest has not come to where this operation can go on; `waits_for` says in words what
    that is, for operators too. `begun` is whether there is anything of the machine yet."""

    def __init__(self, waits_for: str, *, begun: bool = True) -> None:
        super().__init__(waits_for)
        self.waits_for, self.begun = waits_for, begun


def talk_s(claimed: Claim) -> float:
    """How many seconds this run may talk to the guest."""
    return min(_TALK_S + claimed.waited_s / 10, _LONGEST_TALK_S)
