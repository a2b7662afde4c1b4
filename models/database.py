"""The one database and its connections."""
import itertools
import logging
import select
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any, TypeVar

import peewee
import psycopg2
import psycopg2.extensions
from playhouse.pool import MaxConnectionsExceeded, PooledPostgresqlDatabase
from psycopg2.extensions import parse_dsn

from config.settings import SettingsError

log = logging.getLogger(__name__)
Result = TypeVar("Result")
_AWAY_PAUSE_S = 0.5
_REST_S = 1.0
_numbers = itertools.count()


class ConnectionsTaken(peewee.OperationalError):
    """This process uses all the connections that it may have, and none became free in time; later
    one may be."""


class _Connection(psycopg2.extensions.connection):
    """One connection; `prepared` are the statements that it has prepared: text -> what executes
    it."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.prepared: dict[str, str] = {}


class _Opening(peewee.PostgresqlDatabase):
    """Opens connections, one after another, for the whole pool waits for each. When a server has
    said nothing to one for as long as we wait, the others that wait behind it fail with it, and so
    do those that come within a second: else the last of many would wait for all tries before."""

    _failed_at: float | None = None

    def _connect(self) -> Any:
        began = time.monotonic()
        if self._failed_at is not None and began - self._failed_at < _REST_S:
            raise peewee.OperationalError("the database has just said nothing to another")
        try:
            connected = super()._connect()
        except psycopg2.OperationalError:
            ended = time.monotonic()
            self._failed_at = ended if ended - began > _REST_S else None
            raise
        self._failed_at = None
        return connected


class _Pool(PooledPostgresqlDatabase, _Opening):
    """Asks the server whether an idle connection still lives only when its socket has something to
    say.

    peewee asks at every checkout, with the pool's lock held: a statement more for each block of
    statements, and all threads of a process wait for it. A server that ends, or ends a connection,
    says so on the socket; one that vanished without a word would not answer a question either.
    """

    def connect(self, reuse_if_open: bool = False) -> Any:
        """Take a connection for this thread. Raises ConnectionsTaken: peewee's own error is a
        ValueError, which who waits for the database would take for a mistake in the program."""
        try:
            return super().connect(reuse_if_open)
        except MaxConnectionsExceeded as error:
            raise ConnectionsTaken(str(error)) from error

    def forget(self) -> None:
        """Use none of the present connections again: they lead to what the process pointed at
        before. One that a thread holds is closed when that lets go of it."""
        with self._pool_lock:
            self.close_idle()
            self._in_use.clear()
            self._failed_at = None

    def _is_closed(self, conn: Any) -> bool:
        if conn.closed:
            return True
        poller = select.poll()  # select fails for a process with more than 1023 open files
        poller.register(conn, select.POLLIN)
        return bool(poller.poll(0)) and super()._is_closed(conn)


database = _Pool(None)

# What those catch who know nothing of peewee: any failure of the database, and one that a restart
# of the server or of the network explains, so that the same statement may succeed later.
DatabaseFailed = peewee.PeeweeException
DatabaseUnavailable = (peewee.OperationalError, peewee.InterfaceError)


# Ends what a statement, a lock or a silent client would hold up; in the words of libpq.
_LIMITS = ("-c statement_timeout=20000 -c lock_timeout=10000"
           " -c idle_in_transaction_session_timeout=30000")


def connect(url: str, *, pool_size: int = 20, application: str = "svc",
            limited: bool = True) -> None:
    """Point the process at `url`; opens nothing yet. A connection is per thread; take one with
    `connection()`. With `limited=False` a statement may take, and wait, as long as it needs.

    The URL is libpq's, with all its parameters (`sslmode`, `sslrootcert`, several hosts...), and
    they win over our defaults. Raises SettingsError if it is none.
    """
    try:
        parts = parse_dsn(url)
    except psycopg2.ProgrammingError:
        # libpq quotes the URL, which may hold the password.
        raise SettingsError(
            "SVC_DATABASE_URL is not a URL that Postgres's libpq understands.") from None
    name, options = parts.pop("dbname", ""), parts.pop("options", "")
    database.forget()
    database.connect_params.clear()
    database.init(
        name, max_connections=pool_size,
        # A connection older than this is replaced, so that a restarted server is noticed even by an
        # idle thread.
        stale_timeout=120, timeout=5, options=f"{_LIMITS if limited else ''} {options}".strip(),
        connection_factory=_Connection,
        **{"connect_timeout": 3, "application_name": application, "keepalives_idle": 10,
           "keepalives_interval": 5, "keepalives_count": 2,
           # The kernel does not ask whether it lives while something sent to it is on its way.
           "tcp_user_timeout": 15000, **parts},
    )


@contextmanager
def connection() -> Iterator[None]:
    """Hold one pooled connection; a broken one is dropped on the way out, and the idle ones with
    it.

    After a restart of the server every idle connection is dead: one caller finds out for all.
    """
    if not database.is_closed():
        yield
        return
    database.connect()
    try:
        yield
    except (peewee.OperationalError, peewee.InterfaceError):
        database.manual_close()
        database.close_idle()
        raise
    finally:
        if not database.is_closed():
            database.close()


def execution_of(text: str) -> str:
    """What executes the statement `text`, with the same parameters, as one that this thread's
    connection has prepared; it does so the first time."""
    prepared: dict[str, str] = database.connection().prepared
    if text not in prepared:
        name, (first, *others) = f"s{next(_numbers)}", text.split("%s")
        numbered = "".join(f"${number}{part}" for number, part in enumerate(others, 1))
        database.execute_sql(f"PREPARE {name} AS {first}{numbered}")
        prepared[text] = f"EXECUTE {name} ({', '.join(['%s'] * len(others))})"
    return prepared[text]


def answers() -> bool:
    """Whether the database answers a new question at present."""
    try:
        with connection():
            database.execute_sql("SELECT 1")
    except DatabaseUnavailable:
        return False
    return True


def when_database_answers(action: Callable[[], Result], *, limit_s: float = 120.0) -> Result:
    """Call `action` with a connection, again as long as the database is away; raises what the last
    try raised after `limit_s` seconds. For results of work that is done: the database's return is
    the only thing they wait for."""
    deadline = time.monotonic() + limit_s
    while True:
        try:
            with connection():
                return action()
        except DatabaseUnavailable as error:
            if time.monotonic() > deadline:
                raise
            log.warning("waiting for the database: %s", type(error).__name__)
            time.sleep(_AWAY_PAUSE_S)


@contextmanager
def relaxed_transaction() -> Iterator[None]:
    """A transaction whose loss in a crash of the server is harmless, so it does not wait for the
    disk."""
    with database.atomic():
        database.execute_sql("SET LOCAL synchronous_commit = off")
        yield


# The lock of every read-then-write on a row. The plain FOR UPDATE also shuts out inserts that
# merely refer to the row by a foreign key, and two transactions that did one of each would wait for
# each other.
ROW_LOCK = "FOR NO KEY UPDATE"
UNLOCKED_ROWS = "FOR NO KEY UPDATE SKIP LOCKED"


def now() -> datetime:
    """The present, aware, UTC."""
    return datetime.now(timezone.utc)
