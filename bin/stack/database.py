"""The database of a one-box stack, seen by its superuser: root comes to it by the socket in the
server's own directory, nobody else and from nowhere else."""
import contextlib
import os
from collections.abc import Iterator
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

import psycopg2
from psycopg2 import sql
from psycopg2.extensions import encrypt_password

from bin.stack.site import Site

_RIGHTS = "LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS"


@contextlib.contextmanager
def superuser_connection(site: Site) -> Iterator[Any]:
    """A connection that commits every statement; raises psycopg2.OperationalError while the server
    is not up."""
    # By a descriptor, because the path of a socket may have 107 characters and a checkout's more.
    directory = os.open(site.data_dir / "postgres", os.O_PATH)
    try:
        link = psycopg2.connect(host=f"/proc/{os.getpid()}/fd/{directory}", user="postgres",
                                port=site.port("SVC_DATABASE_URL"), dbname="postgres",
                                connect_timeout=5)
    finally:
        os.close(directory)
    link.autocommit = True
    with contextlib.closing(link):
        yield link


def make_database(site: Site) -> None:
    """Create the service's role and database, if they are not there, and give the role the password
    of the settings and no right beyond its database; the superuser loses the password that it had
    in earlier versions. Needs Postgres running."""
    url = urlsplit(site.values["SVC_DATABASE_URL"])
    with superuser_connection(site) as link, link.cursor() as cursor:
        _make_role(cursor, url, link)
        cursor.execute("ALTER ROLE postgres PASSWORD NULL")
        name, owner = sql.Identifier(url.path.lstrip("/")), sql.Identifier(url.username or "svc")
        cursor.execute("SELECT 1 FROM pg_database WHERE datname = %s", (url.path.lstrip("/"),))
        if not cursor.fetchone():
            cursor.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(name, owner))
        cursor.execute(sql.SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC").format(name))


def _make_role(cursor: Any, url: SplitResult, link: Any) -> None:
    role, password = url.username or "svc", unquote(url.password or "")
    cursor.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (role,))
    verb = "ALTER" if cursor.fetchone() else "CREATE"
    statement = sql.SQL(f"{verb} ROLE {{}} {_RIGHTS} PASSWORD %s").format(sql.Identifier(role))
    # Hashed here, so that no statement holds it.
    cursor.execute(statement, (encrypt_password(password, role, link, "scram-sha-256"),))
