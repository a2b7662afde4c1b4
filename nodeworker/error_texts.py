"""What rows say of an error, or of a machine that ended: words for operators and owners, without
what a row cannot hold."""

_TEXT_LIMIT = 2000
ENDED_BY_ITSELF = "its machine ended by itself; it wakes from its disk"


def named(error: BaseException) -> str:
    """An error and what has caused it, for operators."""
    cause = error.__cause__
    by = "" if cause is None else f" ({type(cause).__name__}: {cause})"
    return printable(f"{type(error).__name__}: {error}{by}")


def printable(text: str) -> str:
    """`text` as a row can hold it: parts of it may be what a hostile guest said."""
    return "".join(sign if sign.isprintable() else " " for sign in text[:_TEXT_LIMIT])
