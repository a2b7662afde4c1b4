"""Migrations meet rows that are there already, and have time for them."""
import pytest
from playhouse.migrations import Runner

from bin.stack.site import ROOT
from config.settings import Settings
from models import migrate as migrate_command
from models.database import connect, connection, database, now
from models.migrate import migrate
from models.nodes import Node, PortBinding
from models.sandboxes import AgentServer, Sandbox
from models.snapshots import Snapshot
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
def database_of(databases):
    """Makes a database as it was after the migration of a name."""
    url = databases.create()
    connect(url)

    def make(name):
        database.execute_sql("DROP SCHEMA public CASCADE")
        database.execute_sql("CREATE SCHEMA public")
        Runner(database, str(ROOT / "models" / "migrations")).up(name)

    with connection():
        yield make
    database.close_all()
    databases.drop(url)


def test_sandboxes_of_before_are_counted_once_and_have_used_nothing(database_of):
    database_of("0004_uploads")
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


def test_a_migration_may_take_and_wait_as_long_as_it_needs(databases, monkeypatch):
    url, limits = databases.create(), {}

    def up():
        for name in ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"):
            limits[name] = database.execute_sql(f"SHOW {name}").fetchone()[0]
        return ["told"]

    monkeypatch.setattr(migrate_command, "get_settings", lambda: Settings(database_url=url))
    monkeypatch.setattr(migrate_command, "migrate", up)
    connect(url)
    with connection():
        up()
    assert set(limits.values()) == {"20s", "10s", "30s"}, "of everybody else"
    database.close_all()
    assert migrate_command.main() == 0
    assert set(limits.values()) == {"0"}
    database.close_all()
    databases.drop(url)


def test_ports_that_are_bound_are_their_owners(database_of):
    database_of("0034_images_of_nodes")
    owner = User.create(id="alice", email="alice@example.test", password_hash="none", plan=Plan.PRO,
                        created_at=now())
    Node.create(id="n1", address="127.0.0.1", vcpus=1, mem_mb=1, host_port_low=1, host_port_high=2)
    database.execute_sql(SANDBOX, ("old", owner.id, "hibernated"))
    database.execute_sql("INSERT INTO port_bindings (node_id, host_port, guest_port, sandbox_id)"
                         " VALUES ('n1', 20000, 3000, 'old')")
    assert "0035_ports_of_owners" in migrate()
    assert [row.owner_id for row in PortBinding.select()] == [owner.id]


def test_what_starts_a_stopped_sandbox_is_removed_unless_a_snapshot_of_it_is_left(database_of):
    database_of("0040_waits_in_turn")
    owner = User.create(id="alice", email="alice@example.test", password_hash="none", plan=Plan.PRO,
                        created_at=now())
    Node.create(id="n1", address="127.0.0.1", vcpus=1, mem_mb=1, host_port_low=1, host_port_high=2)
    web_ui = "/opt/svc/presets/lfg/start"
    commands = {"runs": "serve", "gone": "serve", "shown": web_ui, "forked": "serve",
                "unforked": "serve"}
    for name, command in commands.items():
        database.execute_sql(SANDBOX, (name, owner.id, "hibernated" if name == "runs"
                                       else "stopped"))
        Sandbox.update(start_command=command).where(Sandbox.id == name).execute()
        AgentServer.create(sandbox_id=name, source="serve")
    for name, state in (("forked", "ready"), ("unforked", "deleted")):
        Snapshot.create(id=f"snap-{name}", owner=owner.id, node_id="n1", source_sandbox_id=name,
                        vcpus=1, mem_mb=1024, cwd="/", state=state)
    assert "0041_launches_of_stopped_sandboxes" in migrate()
    assert {row.sandbox_id for row in AgentServer.select()} == {"runs", "forked"}
    assert {row.id: row.start_command for row in Sandbox.select()} == {
        **commands, "gone": None, "unforked": None}
