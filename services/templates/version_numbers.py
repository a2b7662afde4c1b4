"""The number that a version of a template gets which is published without one."""
from models.templates import Template
from models.users import User
from services.templates.lookup import named

# Longer numbers (a date with its time) are versions too, but not counted on from.
_DIGITS_MOST = 6


def next_version(namespace: User | None, name: str) -> str:
    """One more than the highest whole number ever given, deleted ones included."""
    versions = [
        row.version for row in Template.select(Template.version).where(named(namespace, name))
    ]
    return str(1 + max((int(text)
                        for text in versions
                        if text.isdecimal() and len(text) <= _DIGITS_MOST), default=0))
