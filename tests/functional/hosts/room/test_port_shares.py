"""One owner holds at most half of a node's host ports, and a node without any takes no sandbox
while another has them."""
from dataclasses import replace
from datetime import timedelta

import pytest

from models.database import connection, now
from models.nodes import Node, PortBinding, RestingPort
from models.operations import Operation
from models.sandboxes import Sandbox
from services.hosts.nodes import heartbeat
from services.hosts.resting_ports import release_ports
from tests.stack.edge import NODE

SANDBOXES = "/v1/sandboxes"
# `small` is the emptiest by far, but for its ports.
SMALL = replace(NODE, id="small", mem_mb=10 * NODE.mem_mb, host_port_low=21000,
                host_port_high=21005, agent_port_low=30000, agent_port_high=30003)
LARGE = replace(NODE, id="large", agent_port_low=30000, agent_port_high=32699)


@pytest.fixture(autouse=True)
def two_nodes(nodeless, owner):
    """Both report and no other does; nothing is bound."""
    with connection():
        PortBinding.delete().execute()
        RestingPort.delete().execute()
        Node.update(heartbeat_at=now() - timedelta(hours=1)).execute()
    heartbeat(SMALL)
    heartbeat(LARGE)


def create(nodeless, owner, ports=(), pin="small"):
    return nodeless.api.post(SANDBOXES, json={"ports": list(ports)}, headers=nodeless.key(owner) | (
        {"X-Svc-Node": pin} if pin else {}))


def settle(sandbox_id, status):
    with connection():
        Operation.delete().where(Operation.sandbox_id == sandbox_id).execute()
        Sandbox.update(status=status, task=None).where(Sandbox.id == sandbox_id).execute()


def test_an_owner_holds_half_and_another_gets_the_rest(nodeless, owner):
    first = create(nodeless, owner, [3000, 4000, 5000]).json["id"]
    refused = create(nodeless, owner, [3000])
    assert refused.status_code == 503 and refused.headers["Retry-After"] == "30"
    assert "holds 3 host ports of node small, of which one account may hold 3" in refused.json[
        "error"]
    assert create(nodeless, nodeless.newcomer(), [3000, 4000, 5000]).status_code == 201
    assert create(nodeless, owner).status_code == 201, "a port for its agent is of another range"
    settle(first, "running")
    more = nodeless.api.get(f"{SANDBOXES}/{first}/url/6000", headers=nodeless.key(owner))
    assert more.status_code == 503 and "no free host ports" in more.json["error"]


def test_the_ports_of_deleted_sandboxes_count_while_they_rest(nodeless, owner):
    for _ in range(2):
        made = create(nodeless, owner, [3000, 4000, 5000])
        assert made.status_code == 201
        settle(made.json["id"], "stopped")
        with connection():
            release_ports(made.json["id"])
        assert create(nodeless, owner, [3000]).status_code == 503
        with connection():
            RestingPort.update(released_at=now() - timedelta(seconds=61)).execute()


def test_who_sleeps_on_all_ports_for_agents_leaves_half_to_others(nodeless, owner):
    for _ in range(2):
        made = create(nodeless, owner)
        assert made.status_code == 201
        settle(made.json["id"], "hibernated")
    assert create(nodeless, owner).status_code == 503
    assert create(nodeless, nodeless.newcomer()).status_code == 201


@pytest.mark.parametrize("ports", [(), (3000,)])
def test_a_sandbox_is_made_where_ports_are_free(nodeless, owner, ports):
    for each in (owner, nodeless.newcomer()):
        for wanted in ([3000, 4000, 5000], []):
            settle(create(nodeless, each, wanted).json["id"], "hibernated")
    made = create(nodeless, nodeless.newcomer(), ports, pin=None)
    assert made.status_code == 201 and made.json["nodeId"] == "large"
    with connection():
        PortBinding.delete().where(PortBinding.node_id == "small").execute()
    made = create(nodeless, nodeless.newcomer(), ports, pin=None)
    assert made.json["nodeId"] == "small", "it is the emptiest"


def test_an_owner_whose_share_of_a_node_is_used_up_gets_another_node(nodeless, owner):
    assert create(nodeless, owner, [3000, 4000, 5000], pin=None).json["nodeId"] == "small"
    assert create(nodeless, owner, [3000], pin=None).json["nodeId"] == "large"
    assert create(nodeless, nodeless.newcomer(), [3000], pin=None).json["nodeId"] == "small"


def test_what_sleeps_on_a_node_without_ports_can_be_woken(nodeless, owner):
    for each in (owner, nodeless.newcomer()):
        for _ in range(2):
            last = create(nodeless, each).json["id"]
            settle(last, "hibernated")
    nodeless.api.post(f"{SANDBOXES}/{last}/wake", headers=nodeless.key(each))
    with connection():
        assert Sandbox.get_by_id(last).task == "wake"
