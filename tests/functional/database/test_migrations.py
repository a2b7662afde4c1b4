"""Migrations meet rows that are there already."""
import pytest
from playhouse.migrations import Runner

from bin.stack.site import ROOT
from models.database import connect, connection, database, now
from models.migrate import migrate
from models.sandboxes import Sandbox
from models.states import Plan
from models.users import User
from services.metering import totals
from services.sandboxes import listing

NODE = """INSERT INTO nodes VALUES ('n1', '127.0.0.1', 1, 1, 1, 2, '{}', true, now(), now())"""
SANDBOX = """
INSERT INTO sandboxes (id, owner_id, node_id, kind, status, op_seq, vcpus, mem_mb, cwd, env, vm_ip,
                       agent_port, agent_token, skip_app_processes, preferred_model, idle_timeout_s,
                       last_active_at, cold_boots, created_at)
VALUES (%s, %s, 'n1', 'api', %s, 1, 1, 1024, '/', '{}', '', 1, 't', true, '', 600, now(), 0, now())
"""


@pytest.fixture
def before_usage(databases):
    """A database as it was before usage was counted."""
    url = databases.create()
    connect(url)
    with connection():
        database.execute_sql("DROP SCHEMA public CASCADE")
        database.execute_sql("CREATE SCHEMA public")
        Runner(database, str(ROOT / "models" / "migrations")).up("0004_uploads")
        yield
    database.close_all()
    databases.drop(url)


def test_sandboxes_of_before_are_counted_once_and_have_used_nothing(before_usage):
    owner = User.create(id="alice", email="alice@example.test", password_hash="none", plan=Plan.PRO,
                        created_at=now())
    database.execute_sql(NODE)
    for number, status in enumerate(("running", "running", "hibernated", "stopped")):
        database.execute_sql(SANDBOX, (f"old{number}", owner.id, status))
    assert "0005_usage" in migrate()
    for number, status in enumerate(("running", "stopped")):
        database.execute_sql(SANDBOX, (f"new{number}", owner.id, status))
    Sandbox.update(status="stopped").where(Sandbox.id == "old0").execute()
    assert {
        status: totals.count_sandboxes(owner.id, status, None)
        for status in (None, "running", "stopped")
    } == {None: 3, "running": 2, "stopped": 3}
    page = listing.list_page(owner, limit=10, offset=0)
    assert page.total == len(page.items) == 3
    assert page.used.wall_clock_ms == 0 and {item.wall_clock_ms for item in page.items} == {0}
