"""Bring the database to the newest schema: `python -m models.migrate`. Safe to run from several
hosts at once.

1. Wait for the server. 2. Take an advisory lock (the runner itself takes none); whoever comes
second waits for the first, however long that takes, and so does a migration of a large table, or
one that waits for its lock: this connection has no time-outs. 3. Apply what is missing, each
migration in a transaction of its own. 4. Release.
"""
import sys
import time
from pathlib import Path

import peewee
from playhouse.migrations import Runner

from config.settings import get_settings
from models import locks
from models.database import connect, connection, database
from models.locks import Lock

_DIRECTORY = Path(__file__).parent / "migrations"


def migrate() -> list[str]:
    """Apply all missing migrations and return the names of those applied; the database must be
    connectable."""
    with connection():
        with locks.holding(Lock.MIGRATIONS):
            runner = Runner(database, str(_DIRECTORY))
            return [str(getattr(item, "name", item)) for item in runner.up() or []]


def wait_for_server(timeout_s: float) -> None:
    """Return once the server takes connections; raises the last error after `timeout_s` seconds."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            with connection():
                return
        except peewee.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def main() -> int:
    """Run the migrations of the configured database."""
    connect(get_settings().database_url, pool_size=1, application="migrate", limited=False)
    wait_for_server(30)
    for name in migrate():
        print(f"applied {name}")
    print("database schema is up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main())
