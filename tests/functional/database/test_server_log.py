"""What the bundled Postgres writes down of statements that fail: that they did, and nothing that
they hold."""
import contextlib

import psycopg2
import pytest

from tests.host.written import in_logs
from tests.stack.waiting import until

SECRET = "sk-the-key-of-a-tenant"


def fail(cursor, statement, *values):
    with pytest.raises(psycopg2.Error):
        cursor.execute(statement, values)


def test_no_statement_that_fails_puts_what_it_holds_into_the_log(servers, edge):
    """A row that is there already, which Postgres would show, comes last: what is written of
    another sort is there by then."""
    url = edge.settings.database_url
    with contextlib.closing(psycopg2.connect(url)) as other, contextlib.closing(
            psycopg2.connect(url)) as link, link.cursor() as cursor:
        link.autocommit = True
        other.cursor().execute("LOCK TABLE sandboxes")
        cursor.execute("SET lock_timeout = 20")
        fail(cursor, "UPDATE sandboxes SET agent_token = %s", SECRET)
        cursor.execute("SET statement_timeout = 20")
        fail(cursor, "SELECT pg_sleep(9), %s", SECRET)
        fail(cursor, "SELECT %s FROM nowhere", SECRET)
        cursor.execute("CREATE TEMP TABLE kept (word text CONSTRAINT words_differ UNIQUE)")
        cursor.execute("INSERT INTO kept VALUES (%s)", (SECRET,))
        fail(cursor, "INSERT INTO kept VALUES (%s)", SECRET)

    def written():
        return b"".join(content for _, content in in_logs(servers.site.data_dir / "log"))

    until(lambda: b"words_differ" in written())
    assert b"lock timeout" in written() and b"statement timeout" in written()
    assert SECRET.encode() not in written()
