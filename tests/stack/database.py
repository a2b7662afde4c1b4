"""Databases for tests: one is migrated once, every test gets a copy of it, which takes a few
hundredths of a second.

And a look into the database of a running stack.
"""
import itertools
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg2

from bin.stack.database import superuser_connection
from bin.stack.running import Stack
from models.database import connection, database

_TEMPLATE = "svc"


class Databases:
    """Makes and drops databases on the Postgres of a stack."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._url = urlsplit(stack.site.values["SVC_DATABASE_URL"])
        self._numbers = itertools.count(1)

    def prepare(self) -> None:
        """Migrate the database that all others are copied from."""
        self._stack.run("python -m models.migrate")

    def create(self) -> str:
        """URL of a fresh copy."""
        name = f"test{next(self._numbers)}"
        self._execute(f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE} OWNER svc")
        return urlunsplit(self._url._replace(path=f"/{name}"))

    def drop(self, url: str) -> None:
        """Remove a copy, cutting off whoever is still connected."""
        self._execute(f"DROP DATABASE {urlsplit(url).path.lstrip('/')} WITH (FORCE)")

    def _execute(self, statement: str) -> None:
        with superuser_connection(self._stack.site) as link, link.cursor() as cursor:
            cursor.execute(statement)


# Of each thread, to each database: to ask takes 0.5 ms of CPU, to connect for it 10, and tests that
# wait ask thirty times a second.
_links = threading.local()


def query(stack: Stack, statement: str, *values: object) -> list[tuple[Any, ...]]:
    """The rows that a statement finds (none if it only changes something) in the database of a
    running stack."""
    link = _link(stack)
    try:
        return _run(link, statement, values)
    except (psycopg2.OperationalError, psycopg2.InterfaceError):
        if not link.closed:
            raise
    # Its server was killed since the last look, and started again.
    return _run(_link(stack), statement, values)


@contextmanager
def locked(stack: Stack, table: str, row_id: str) -> Iterator[None]:
    """Somebody else holds the lock of a row of a running stack for the time of the block."""
    with closing(psycopg2.connect(stack.settings.database_url)) as link:
        with link.cursor() as cursor:
            cursor.execute(f"SELECT 1 FROM {table} WHERE id = %s FOR UPDATE", (row_id,))
            assert cursor.fetchone()
        yield


def set_back(table: str) -> None:
    """Let the database of this process forget which numbers it has given to rows of a table, as
    after a crash it may have forgotten the last ones."""
    with connection():
        database.execute_sql("SELECT setval(pg_get_serial_sequence(%s, 'id'), 1, false)", (table,))


def _link(stack: Stack) -> Any:
    url, known = stack.settings.database_url, _links.__dict__
    if url not in known or known[url].closed:
        known[url] = psycopg2.connect(url)
    return known[url]


def _run(link: Any, statement: str, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
    with link, link.cursor() as cursor:
        cursor.execute(statement, values)
        return list(cursor.fetchall()) if cursor.description else []
