"""What each owner's sandboxes and snapshots occupy on the nodes and in the store."""
import json
from datetime import datetime

from models.database import connection
from models.nodes import DiskUse
from services.hosts import storage_use
from tests.rows.snapshots import operator, row, take
from tests.stack.waiting import becomes


def test_an_operator_sees_what_each_owner_occupies(alice, bob, sim_stack, deps, sandbox):
    taken = take(alice, sandbox)
    becomes(lambda: row(taken).uploaded_to_store)
    node_id, email = sim_stack.settings.node_id, sim_stack.people["SVC_ALICE_EMAIL"]
    deps.queue.sent.clear()
    sim_stack.run(f"celery -A tasks.celery_app call node.disk.sample --queue node.{node_id}.bulk")

    def sampled():
        with connection():
            return DiskUse.select().where(DiskUse.resource_id.in_((sandbox, taken))).count()

    becomes(sampled, 2)
    told = json.loads(operator(sim_stack, "disk-usage", "--json"))
    owner = next(each for each in told["owners"] if each["email"] == email)
    items = json.loads(operator(sim_stack, "disk-usage", email, "--json"))
    mine = {each["id"]: each for each in items}
    assert mine[sandbox]["size_bytes"] > 0 and mine[taken]["store_bytes"] == row(
        taken).tarball_size_bytes
    assert owner["total_bytes"] == sum(each["size_bytes"] + each["store_bytes"] for each in items)
    assert [each["total_bytes"] for each in told["owners"]] == sorted(
        (each["total_bytes"] for each in told["owners"]), reverse=True)
    assert node_id in [each["node_id"] for each in told["nodes"]]
    assert told["store_images"]["simulated"] > 0
    shown = operator(sim_stack, "disk-usage").splitlines()
    assert shown[0].split() == ["owner", "sandboxes", "snapshots", "store", "total"]
    assert any(line.startswith(email)
               for line in shown) and any(line.startswith(f"node {node_id}: ") for line in shown)
    assert any(sandbox in line for line in operator(sim_stack, "disk-usage", email).splitlines())
    (listed,) = [each for each in json.loads(operator(sim_stack, "snapshot-list", email, "--json"))
                 if each["id"] == taken]
    for moment in (listed["created_at"], *(each["sampled_at"] for each in told["nodes"])):
        datetime.strptime(moment, "%Y-%m-%dT%H:%M:%S.%fZ")  # RFC 3339, as every time of the API


def test_a_sample_replaces_the_one_before(rows):
    storage_use.record("elsewhere", {"a": 1, "b": 2}, {"s": 3}, {"images": 4})
    storage_use.record("elsewhere", {"b": 5}, {}, {"images": 4})
    with connection():
        left = {(each.kind, each.resource_id): each.size_bytes
                for each in DiskUse.select().where(DiskUse.node_id == "elsewhere")}
        DiskUse.delete().where(DiskUse.node_id == "elsewhere").execute()
    assert left == {("sandbox", "b"): 5, ("node", "images"): 4, ("node", storage_use.SAMPLED): 0}
