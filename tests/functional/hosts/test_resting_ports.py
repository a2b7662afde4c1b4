"""A host port that a stopped sandbox had goes to nobody for a while: somebody may still talk to
it."""
from dataclasses import replace
from datetime import timedelta

from models.database import connection, now
from models.nodes import PortBinding, RestingPort
from models.operations import Operation
from services.hosts.nodes import heartbeat
from services.hosts.resting_ports import release_ports
from tests.stack.edge import NODE

SANDBOXES = "/v1/sandboxes"
THREE_PORTS = replace(NODE, id="three", host_port_low=21000, host_port_high=21002,
                      agent_port_low=30000, agent_port_high=30999)


def create(nodeless, owner, ports):
    return nodeless.api.post(SANDBOXES, json={"ports": ports},
                             headers=nodeless.key(owner) | {"X-Svc-Node": "three"})


def stop(sandbox_id):
    with connection():
        Operation.delete().where(Operation.sandbox_id == sandbox_id).execute()
        release_ports(sandbox_id)


def test_the_next_tenant_gets_another_port_until_it_has_rested(nodeless, owner):
    heartbeat(THREE_PORTS)
    first = create(nodeless, owner, [3000, 4000]).json
    stop(first["id"])
    with connection():
        assert {row.host_port for row in RestingPort.select()} == set(map(int, first["portMap"]))
        assert not PortBinding.select().where(PortBinding.sandbox_id == first["id"]).exists()
    second = create(nodeless, owner, [3000]).json
    assert not set(second["portMap"]) & set(first["portMap"])
    refused = create(nodeless, owner, [3000])
    assert refused.status_code == 503 and "no free host ports" in refused.json["error"]
    with connection():
        RestingPort.update(released_at=now() - timedelta(seconds=61)).execute()
    third = create(nodeless, owner, [3000, 4000])
    assert set(third.json["portMap"]) == set(first["portMap"])


def test_a_port_that_rests_for_another_node_is_free_here(nodeless, owner):
    heartbeat(THREE_PORTS)
    with connection():
        PortBinding.delete().where(PortBinding.node_id == "three").execute()
        RestingPort.delete().execute()
        for port in (21000, 21001, 21002):
            RestingPort.create(node_id="n1", host_port=port)
    assert create(nodeless, owner, [3000]).status_code == 201
