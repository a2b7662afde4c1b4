"""A page of an owner with 100,000 sandboxes is read as one of an owner with 1,000: from an index,
and no further."""
import pytest

from models.database import connection, database, now
from models.ids import new_id
from models.states import SandboxStatus
from models.usage import SandboxTally
from services.metering import totals
from services.sandboxes import listing
from tests.rows.plans import buffers, explain, nodes

FILL = """
INSERT INTO sandboxes (id, owner_id, node_id, kind, status, op_seq, vcpus, mem_mb, cwd, env, vm_ip,
                       agent_port, agent_token, skip_app_processes, preferred_model, idle_timeout_s,
                       last_active_at, cold_boots, created_at)
SELECT %(prefix)s || lpad(number::text, 6, '0'), %(owner)s, 'n1',
       CASE number %% 4 WHEN 0 THEN 'other' ELSE 'api' END,
       (ARRAY['hibernated', 'running', 'stopped'])[number %% 3 + 1],
       1, 1, 1024, '/home/user', '{}', '', 20000,
       repeat('t', 43), true, '', 600, %(at)s, 0, %(at)s::timestamptz - number * interval '1 second'
FROM generate_series(%(first)s, %(last)s) AS number
"""
FILTERS = [(None, None), (None, "api"), ("stopped", None), ("running", "api")]


@pytest.fixture(scope="module")
def owners(edge):
    """Two owners, of 1,000 and of 100,000 sandboxes, in a database that has been vacuumed as it is
    all the time."""
    few, many = edge.newcomer(), edge.newcomer()
    with connection():
        for owner, count in ((few, 1000), (many, 100_000)):
            values = {"prefix": new_id(), "owner": owner.id, "at": now()}
            # in parts: each has the time limit of a statement, on a busy machine too
            for first in range(1, count, 10_000):
                last = min(first + 9_999, count)
                database.execute_sql(FILL, {**values, "first": first, "last": last})
        totals.sum_up()
        for table in ("sandboxes", "sandbox_tallies", "usage_tallies", "sandbox_usage"):
            database.execute_sql(f"VACUUM ANALYZE {table}")
    return few, many


@pytest.mark.parametrize(("status", "kind"), FILTERS)
def test_the_ids_of_a_page_come_from_an_index_alone_and_are_all_that_is_visited(
        owners, status, kind):
    cost = []
    for owner in owners:
        plan = explain(*listing.ids_query(owner.id, 150, 0, status, kind).sql())
        found = list(nodes(plan))
        assert {node["Node Type"] for node in found} == {"Limit", "Index Only Scan"}
        scan = found[-1]
        assert scan["Actual Rows"] == 150 and scan["Heap Fetches"] == 0
        assert scan.get("Rows Removed by Filter", 0) == 0
        cost.append(buffers(plan))
    assert cost[1] <= cost[0] + 3, "a deeper index has a page or two more on the way down"


def test_a_whole_page_of_500_costs_the_same_out_of_100_000(owners):
    few, many = (explain(*listing.page_query(owner.id, 500, 0, None, None).sql())
                 for owner in owners)
    for plan in (few, many):
        assert plan["Actual Rows"] == 500
        scans = [node for node in nodes(plan) if node.get("Relation Name") == "sandboxes"]
        assert {"Index Only Scan"} <= {node["Node Type"] for node in scans}
        assert max(node["Actual Rows"] * node["Actual Loops"] for node in scans) <= 500
    assert buffers(many) <= 1.1 * buffers(few)


def test_totals_read_a_handful_of_rows(owners):
    for query in ("SELECT coalesce(sum(sandboxes), 0) FROM sandbox_tallies WHERE owner_id = %s",
                  "SELECT coalesce(sum(wall_clock_ms), 0) FROM usage_tallies WHERE owner_id = %s"):
        plan = explain(query, (owners[1].id,))
        assert sum(node["Actual Rows"] for node in nodes(plan)) < 20 and buffers(plan) < 10
    with connection():
        assert SandboxTally.select().where(SandboxTally.owner_id == owners[1].id).count() == 6


@pytest.mark.parametrize(("status", "kind"), FILTERS)
def test_the_total_is_the_true_count(owners, status, kind):
    wanted = f"status = '{status}'" if status else f"status <> '{SandboxStatus.STOPPED.value}'"
    wanted += f" AND kind = '{kind}'" if kind else ""
    for owner in owners:
        with connection():
            counted = database.execute_sql(
                f"SELECT count(*) FROM sandboxes WHERE owner_id = %s AND {wanted}",
                (owner.id, )).fetchone()[0]
            assert totals.count_sandboxes(owner.id, status, kind) == counted
        page = listing.list_page(owner, limit=1, offset=0, status=status, kind=kind)
        assert page.total == counted


def test_the_count_follows_every_change_of_a_row(owners):
    owner = owners[0]

    def counts():
        with connection():
            return [
                totals.count_sandboxes(owner.id, status, kind)
                for status, kind in (
                    (None, None), ("stopped", None), ("running", "api"), (None, "other"),
                )
            ]

    before = counts()
    with connection(), database.atomic() as change:
        database.execute_sql(
            "UPDATE sandboxes SET status = 'stopped', task = NULL WHERE owner_id = %s",
            (owner.id, ))
        assert counts() == [0, 1000, 0, 0]
        database.execute_sql(
            "UPDATE sandboxes SET status = 'running', kind = 'api' WHERE owner_id = %s",
            (owner.id, ))
        assert counts() == [1000, 0, 1000, 0]
        database.execute_sql("DELETE FROM sandboxes WHERE owner_id = %s", (owner.id,))
        assert counts() == [0, 0, 0, 0]
        change.rollback()
    assert counts() == before
