"""Makes the ids of rows: a prefix that says of what, and twelve random characters.

Ids are read aloud and typed: no vowels (no words), no look-alikes. Twelve characters are 57 bits.
"""
import secrets

_ALPHABET = "bcdfghjkmnpqrstvwxz23456789"
_LENGTH = 12


def new_id(prefix: str = "") -> str:
    """A fresh random id, `prefix` included."""
    return prefix + "".join(secrets.choice(_ALPHABET) for _ in range(_LENGTH))
