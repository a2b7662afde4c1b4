"""The variables of an app: what its process and its builds find in their environment.

1. A value is kept sealed. 2. One that is a secret never comes back to anybody but the app's own
process: no answer, log, queue or event holds it, and builds, which write logs, do not get it. 3. A
change is seen by what is deployed after it.
"""
import re
from dataclasses import dataclass
from datetime import datetime

from config.settings import Settings
from models.database import connection, database, now
from models.deploys import AppVariable
from models.users import User
from services.deploys.apps.access import get_owned, lock_owned
from services.deploys.apps.sealing import SealedForGood, seal, unseal
from services.errors import Conflict, InvalidRequest, NotFound
from services.protocols import Deps

NAME_MOST, VALUE_BYTES_MOST, NUMBER_MOST = 128, 32 * 1024, 100
# A process finds all of them in its environment, which has a most of its own (2 MiB on Linux).
SEALED_BYTES_MOST = 512 * 1024
_NAME = re.compile(rf"[A-Za-z_][A-Za-z0-9_]{{0,{NAME_MOST - 1}}}", re.ASCII)
# The port is the contract's (Deploy rule 5); the others are what we tell processes in a guest.
_OURS = ("PORT",)
_OUR_PREFIX = "SVC_"


@dataclass(frozen=True)
class Variable:
    """A variable as services see it; of a secret there is no `value`, nor of one that was sealed
    with a secret that is gone."""

    name: str
    secret: bool
    value: str | None
    updated_at: datetime


def list_all(deps: Deps, owner: User, slug: str) -> list[Variable]:
    """The variables of an app of the owner's, by name; raises NotFound, Forbidden, Unavailable."""
    with connection():
        app = get_owned(owner, slug)
        rows = list(AppVariable.select().where(AppVariable.app_id == app.app_id).order_by(
            AppVariable.name))
    return [_shown(row, None if row.secret else _find_value(deps.settings, row)) for row in rows]


def put(deps: Deps, owner: User, slug: str, name: str, value: str, *, secret: bool) -> Variable:
    """Set a variable of an app of the owner's, whether or not there is one of this name.

    Raises NotFound, Forbidden, InvalidRequest for a name that it cannot have or too long a value,
    Conflict for one variable, or some bytes, too many.
    """
    _check_name(name)
    if len(value.encode()) > VALUE_BYTES_MOST:
        raise InvalidRequest(f"value: must have at most {VALUE_BYTES_MOST} bytes")
    with connection(), database.atomic():
        # Locked: of several changes at once each counts what the others left
        app = lock_owned(owner, slug)
        row = AppVariable(app_id=app.app_id, name=name, secret=secret, updated_at=now(),
                          sealed=seal(deps.settings, _place(app.app_id, name), value))
        others = [len(other.sealed) for other in AppVariable.select().where(
            (AppVariable.app_id == app.app_id) & (AppVariable.name != name))]
        if len(others) >= NUMBER_MOST:
            raise Conflict(f"The app has {NUMBER_MOST} variables already.")
        if sum(others) + len(row.sealed) > SEALED_BYTES_MOST:
            raise Conflict(f"The variables of the app have more than {SEALED_BYTES_MOST} bytes.")
        AppVariable.insert(row.__data__).on_conflict(
            conflict_target=[AppVariable.app_id, AppVariable.name],
            preserve=[AppVariable.secret, AppVariable.sealed, AppVariable.updated_at]).execute()
    return _shown(row, None if secret else value)


def remove(owner: User, slug: str, name: str) -> Variable:
    """Remove a variable of an app of the owner's; returns it without its value. Raises
    NotFound, Forbidden."""
    with connection(), database.atomic():
        app = lock_owned(owner, slug)
        which = (AppVariable.app_id == app.app_id) & (AppVariable.name == name)
        rows = list(AppVariable.delete().where(which).returning(AppVariable).execute())
    if not rows:
        raise NotFound(f"The app {slug} has no variable of this name.")
    return _shown(rows[0], None)


def get_for_run(settings: Settings, app_id: str) -> dict[str, str]:
    """What the app's process is to find in its environment, secrets included: name -> value, which
    may have several lines. Raises Unavailable."""
    with connection():
        rows = list(AppVariable.select().where(AppVariable.app_id == app_id))
    return {row.name: _value(settings, row) for row in rows}


def get_for_build(settings: Settings, app_id: str) -> dict[str, str]:
    """What a build is to find in its environment: no secrets, as a build writes a log. Raises
    Unavailable."""
    with connection():
        rows = list(AppVariable.select().where(
            (AppVariable.app_id == app_id) & ~AppVariable.secret))
    return {row.name: _value(settings, row) for row in rows}


def list_secrets(settings: Settings, app_id: str) -> list[str]:
    """The values of its secrets, to keep them out of a text. Raises Unavailable."""
    with connection():
        rows = list(AppVariable.select().where(
            (AppVariable.app_id == app_id) & AppVariable.secret))
    return [_value(settings, row) for row in rows]


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidRequest(f"the name of a variable must be 1 to {NAME_MOST} of A-Z, a-z, 0-9 and"
                             " _, and not begin with a digit")
    if name in _OURS or name.startswith(_OUR_PREFIX):
        raise InvalidRequest(f"the name {name} is reserved")


def _shown(row: AppVariable, value: str | None) -> Variable:
    return Variable(row.name, row.secret, value, row.updated_at)


def _find_value(settings: Settings, row: AppVariable) -> str | None:
    try:
        return _value(settings, row)
    except SealedForGood:
        return None


def _value(settings: Settings, row: AppVariable) -> str:
    return unseal(settings, _place(row.app_id, row.name), bytes(row.sealed))


def _place(app_id: str, name: str) -> str:
    return f"{app_id}/{name}"
