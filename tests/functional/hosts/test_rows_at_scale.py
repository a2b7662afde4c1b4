"""What a node and its placement ask of the rows costs the same with 100,000 rows as with 1,000, of
which as many are awake."""
import logging

from config.settings import Settings
from models.database import connection, database, now
from models.states import Plan
from models.users import User
from services.hosts import hibernate_all, node_load, placement
from services.hosts.nodes import NodeFacts, heartbeat
from services.hosts.port_room import PortsWanted
from services.metering import counting
from services.reconciliation import lost_files, seen_rows
from services.snapshots import needed_on_node
from tests.fakes.outside import ListQueue
from tests.rows.plans import buffers, explain, nodes

# Of a thousand rows 220 sleep on n1 and 500 on n2, the rest are stopped.
FILL = """
INSERT INTO sandboxes (id, owner_id, node_id, kind, status, op_seq, vcpus, mem_mb, cwd, env, vm_ip,
                       agent_port, agent_token, skip_app_processes, preferred_model, idle_timeout_s,
                       last_active_at, cold_boots, created_at)
SELECT 's' || lpad(number::text, 11, '0'), 'alice',
       CASE WHEN number %% 1000 < 720 AND number %% 1000 >= 220 THEN 'n2' ELSE 'n1' END, 'api',
       CASE WHEN number %% 1000 < 720 THEN 'hibernated' ELSE 'stopped' END,
       1, 1, 1024, '/home/user', '{}', '', 20000,
       repeat('t', 43), true, '', 600, %(at)s, 0, %(at)s
FROM generate_series(%(first)s, %(last)s) AS number
"""
# Ten of each node are awake, one is on its way down and one on its way to sleep.
AWAKE = """
UPDATE sandboxes
SET status = CASE number WHEN 11 THEN 'stopped' ELSE 'running' END,
    task = CASE number WHEN 11 THEN 'stop' WHEN 12 THEN 'hibernate' END
FROM (SELECT id AS chosen, row_number() OVER (PARTITION BY node_id ORDER BY id) AS number
      FROM sandboxes) AS numbered
WHERE id = chosen AND number <= 12
"""
# What checks each row that is inserted, and counts it, is not what is looked at here.
UNCHECKED = """
ALTER TABLE sandboxes DISABLE TRIGGER USER;
ALTER TABLE sandboxes DROP CONSTRAINT sandboxes_owner_id_fkey;
ALTER TABLE sandboxes DROP CONSTRAINT sandboxes_node_id_fkey
"""
# The rows take longer to make than a node may be silent.
SETTINGS = Settings(node_id="n1", node_dead_after_s=3600)
ASLEEP = [f"s{number:011}" for number in range(100, 120)]
CALLS = {
    "what the reconciler compares": lambda: seen_rows.list_settled("n1", ASLEEP),
    "what of the missing had files": lambda: lost_files.list_candidates("n1", ASLEEP),
    "which are done with": lambda: seen_rows.list_stopped("n1", ASLEEP),
    "one that looks orphaned": lambda: seen_rows.is_wanted("n1", ASLEEP[0]),
    "what is promised": lambda: node_load.read_load("n1"),
    "nodes by load": lambda: placement.list_by_load(SETTINGS),
    "claim on a node": lambda: placement.claim_node(SETTINGS, 1, 1024).id,
    "what is metered": lambda: counting.list_metered("n1"),
    "what is drained": lambda: hibernate_all.begin_hibernating(SETTINGS, ListQueue()),
}


def plans(call, caplog):
    """The plans of the statements by which a call reads sandboxes. What it changes is taken
    back."""
    caplog.clear()
    with caplog.at_level(logging.DEBUG, "peewee"), connection(), database.atomic() as change:
        call()
        change.rollback()
    asked = [each.msg for each in caplog.records if each.name == "peewee"]
    return [explain(*each) for each in asked
            if each[0].startswith("SELECT") and '"sandboxes"' in each[0]]


def fill(first, last):
    with connection():
        for begin in range(first, last, 10_000):
            end = min(begin + 9_999, last)
            database.execute_sql(FILL, {"first": begin, "last": end, "at": now()})
        # as it is all the time
        database.execute_sql("VACUUM ANALYZE sandboxes")


def test_with_100_000_rows_the_same_is_read_as_with_1_000(fresh_rows, caplog):
    for node in ("n1", "n2"):
        heartbeat(NodeFacts(node, "127.0.0.1", 10_000, 10_000_000, 20000, 29999, {}))
    with connection():
        User.create(id="alice", email="alice@example.org", password_hash="x", plan=Plan.LEGACY_PRO)
        database.execute_sql(UNCHECKED)
    fill(1, 1000)
    with connection():
        database.execute_sql(AWAKE)
    few = {name: plans(call, caplog) for name, call in CALLS.items()}
    fill(1001, 100_000)
    for name, call in CALLS.items():
        many = plans(call, caplog)
        assert many and len(many) == len(few[name]), name
        for plan in many:
            scans = [node for node in nodes(plan) if node.get("Relation Name") == "sandboxes"]
            visited = sum(node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
                          for node in scans)
            assert visited <= 24, f"{name}: {visited} rows"
        # an index is a page or two deeper for each of the rows that are looked up
        assert sum(map(buffers, many)) <= sum(map(buffers, few[name])) + 2 * 24, name
    check_the_ids_come_from_an_index_alone()


def test_the_snapshots_of_a_node_are_found_by_an_index(fresh_rows, caplog):
    with caplog.at_level(logging.DEBUG, "peewee"):
        needed_on_node.list_needed("n1")
    asked = next(each.msg for each in caplog.records if 'FROM "snapshots"' in each.msg[0])
    with connection(), database.atomic():
        # of a table without rows
        database.execute_sql("SET LOCAL enable_seqscan = off")
        assert "snapshots_node" in {node.get("Index Name") for node in nodes(explain(*asked))}


def test_the_ports_of_a_node_and_of_an_owner_are_counted_by_indexes(fresh_rows, caplog):
    heartbeat(NodeFacts("n1", "127.0.0.1", 4, 4096, 20000, 29999, {}))
    with caplog.at_level(logging.DEBUG, "peewee"), connection():
        placement.claim_node(SETTINGS, 1, 1024, ports=PortsWanted("alice", 1))
    asked = [each.msg for each in caplog.records if 'FROM "port_bindings"' in each.msg[0]]
    assert len(asked) == 1, "both ranges are one here"
    with connection(), database.atomic():
        # of a table without rows
        database.execute_sql("SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off")
        scans = [node for node in nodes(explain(*asked[0])) if "Relation Name" in node]
    assert {node["Node Type"] for node in scans} <= {"Index Scan", "Index Only Scan"}
    assert {"port_bindings", "resting_ports"} == {node["Relation Name"] for node in scans}
    assert len(scans) == 4


def check_the_ids_come_from_an_index_alone():
    """They are the one thing that grows with what sleeps on a node."""
    plan = explain(*seen_rows.wanted_query("n1").sql())
    sleeping = [node for node in nodes(plan) if node.get("Index Name") == "sandboxes_node"]
    assert [node["Node Type"] for node in sleeping] == ["Index Only Scan"]
    assert plan["Actual Rows"] == len(seen_rows.list_wanted("n1")) == 22_000
    assert buffers(plan) < 22_000 / 100, "some hundred ids are on a page"
