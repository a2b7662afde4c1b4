"""A host port that a stopped sandbox had goes to nobody for a while: somebody may still talk to
it."""
from dataclasses import replace
from datetime import timedelta

import pytest

from guest.agent.protocol import AGENT_PORT
from models.database import connection, now
from models.nodes import PortBinding, RestingPort
from models.operations import Operation
from models.states import OperationState
from services.hosts.nodes import heartbeat
from services.hosts.resting_ports import forget_rested, release_ports
from tests.stack.edge import NODE

SANDBOXES = "/v1/sandboxes"
FOUR_PORTS = replace(NODE, id="four", host_port_low=21000, host_port_high=21003,
                     agent_port_low=30000, agent_port_high=30999)
REST_S = 60


@pytest.fixture(autouse=True)
def no_ports():
    with connection():
        PortBinding.delete().where(PortBinding.node_id == "four").execute()
        RestingPort.delete().execute()


def create(nodeless, owner, ports):
    return nodeless.api.post(SANDBOXES, json={"ports": ports},
                             headers=nodeless.key(owner) | {"X-Svc-Node": "four"})


def stop(sandbox_id, boot=OperationState.SUCCEEDED):
    with connection():
        Operation.update(state=boot).where(Operation.sandbox_id == sandbox_id).execute()
        release_ports(sandbox_id)


def test_the_next_tenant_gets_another_port_until_it_has_rested(nodeless, owner):
    heartbeat(FOUR_PORTS)
    first = create(nodeless, owner, [3000, 4000]).json
    stop(first["id"])
    with connection():
        assert {row.host_port for row in RestingPort.select()} == set(map(int, first["portMap"]))
        assert not PortBinding.select().where(PortBinding.sandbox_id == first["id"]).exists()
    next_one = nodeless.newcomer()
    second = create(nodeless, next_one, [3000, 4000]).json
    assert not set(second["portMap"]) & set(first["portMap"])
    refused = create(nodeless, nodeless.newcomer(), [3000])
    assert refused.status_code == 503 and "no free host ports" in refused.json["error"]
    with connection():
        RestingPort.update(released_at=now() - timedelta(seconds=REST_S + 1)).execute()
    third = create(nodeless, owner, [3000, 4000])
    assert set(third.json["portMap"]) == set(first["portMap"])


def test_a_port_that_rests_for_another_node_is_free_here(nodeless, owner):
    heartbeat(FOUR_PORTS)
    with connection():
        for port in range(21000, 21004):
            RestingPort.create(node_id="n1", host_port=port)
    assert create(nodeless, owner, [3000]).status_code == 201


@pytest.mark.parametrize(("boot", "rests"), [
    (OperationState.SUCCEEDED, False), (OperationState.SUPERSEDED, True),
    (OperationState.FAILED, True)])
def test_the_port_of_an_agent_rests_if_a_worker_may_still_be_making_its_machine(
        nodeless, owner, boot, rests):
    heartbeat(replace(FOUR_PORTS, agent_port_high=30001))
    made = create(nodeless, owner, []).json["id"]
    with connection():
        first = PortBinding.get((PortBinding.sandbox_id == made)
                                & (PortBinding.guest_port == AGENT_PORT)).host_port
    stop(made, boot)
    got = []
    for answer in (create(nodeless, nodeless.newcomer(), []) for _ in range(2)):
        got.append(answer.status_code)
    with connection():
        bound = {row.host_port for row in PortBinding.select().where(PortBinding.node_id == "four")}
    assert got == ([201, 503] if rests else [201, 201]) and (first in bound) is not rests


def test_what_has_rested_is_forgotten():
    with connection():
        RestingPort.create(node_id="four", host_port=21000,
                           released_at=now() - timedelta(seconds=REST_S + 1))
        RestingPort.create(node_id="four", host_port=21001)
    forget_rested(REST_S)
    with connection():
        assert [row.host_port for row in RestingPort.select()] == [21001]
