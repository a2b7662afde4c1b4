"""Says what looks like a host name, for the names that apps are given and for those of certificates
that nginx is told."""
import re

_LABEL = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
# Its last label has a letter, so no address is one.
_NAME = re.compile(rf"(?:{_LABEL}\.)+(?=[a-z0-9-]*[a-z]){_LABEL}")
_LENGTH_MAX = 253


def is_host_name(text: str) -> bool:
    """True of a name with a dot in small letters; other alphabets are written as xn--...."""
    return len(text) <= _LENGTH_MAX and _NAME.fullmatch(text) is not None
