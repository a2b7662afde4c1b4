"""Finds out as whom a shell runs: the user of the sandbox, as the guest's own files describe it."""
import os
from collections.abc import Iterator
from typing import NamedTuple

from ..requests import HOME_DIR, SHELL

USER_ID = 1000


class Account(NamedTuple):
    """A user of the guest; `groups` are all it is a member of."""

    name: str
    user_id: int
    group_id: int
    groups: list[int]
    home: str
    shell: str

    def environment(self) -> dict[str, str]:
        """What a login tells a shell about its user."""
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name, "SHELL": self.shell}


def sandbox_user(root: str) -> Account:
    """The account with USER_ID. One that was removed is made up; a shell that cannot be executed is
    replaced by the usual one."""
    name, group_id, home, shell = "user", USER_ID, HOME_DIR, SHELL
    for fields in _entries(root + "/etc/passwd", 7):
        if fields[2] == str(USER_ID) and fields[3].isdigit():
            name, group_id, home = fields[0], int(fields[3]), fields[5] or "/"
            shell = fields[6] if os.access(fields[6], os.X_OK) else SHELL
            break
    groups = [int(fields[2]) for fields in _entries(root + "/etc/group", 4)
              if name in fields[3].split(",") and fields[2].isdigit()]
    return Account(name, USER_ID, group_id, [group_id, *groups], home, shell)


def _entries(path: str, width: int) -> Iterator[list[str]]:
    """The lines of such a file that have as many fields as they should."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            for line in file:
                fields = line.rstrip("\n").split(":")
                if len(fields) == width:
                    yield fields
    except FileNotFoundError:
        pass
