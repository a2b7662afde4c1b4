"""How long it takes until an operation that waits for its guest is looked at again: short pauses
first, so that a quick guest is found ready at once, and longer ones as it takes longer."""

_SHORTEST_S, _LONGEST_S = 0.2, 2.0


def poll_interval_s(waited_s: float) -> float:
    """The pause (s) before the next look, after `waited_s` seconds in vain. Pure."""
    return min(max(waited_s / 4, _SHORTEST_S), _LONGEST_S)
