"""Says what the name and the version of a template may be, and reads both out of its id: `<id>` is
the latest version, `<id>-v<version>` one that never changes.

A version begins with a digit, so that names and versions cannot be mistaken for each other:
whatever has `-v` and a digit in it refers to a version, split at the first such place. `react-vite`
is a name, `react-v2` a version of `react`.
"""
import re
from dataclasses import dataclass

from services.errors import InvalidRequest

NAME_MAX, VERSION_MAX = 64, 32
_VERSION = re.compile(r"[0-9][A-Za-z0-9._-]*", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
_REFERENCE = re.compile(r"(.+?)-v([0-9].*)", re.ASCII)


@dataclass(frozen=True)
class Reference:
    """A parsed template id; `version` None means the latest."""

    name: str
    version: str | None = None

    def __str__(self) -> str:
        return self.name if self.version is None else f"{self.name}-v{self.version}"


def parse(template_id: str) -> Reference:
    """Raises InvalidRequest for what can be neither a name nor a version of one."""
    match = _REFERENCE.fullmatch(template_id)
    name, version = match.groups() if match else (template_id, None)
    if not _NAME.fullmatch(name) or len(name) > NAME_MAX:
        raise InvalidRequest(
            f"a template id has 1 to {NAME_MAX} letters, digits, '-', '_' and '.', and begins with"
            " a letter or a digit"
        )
    if version is not None:
        check_version(version)
    return Reference(name, version)


def check_version(version: str) -> None:
    """Raises InvalidRequest for a text that cannot be a version."""
    if not _VERSION.fullmatch(version) or len(version) > VERSION_MAX:
        raise InvalidRequest(
            f"a version has 1 to {VERSION_MAX} letters, digits, '-', '_' and '.', and begins with a"
            " digit, such as 2, 1.4.0 or 2026-11-21"
        )
