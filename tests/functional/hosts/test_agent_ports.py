"""The agents of guests have host ports of a range of their own, also those of sandboxes that were
made before it."""
from dataclasses import replace

from guest.agent.protocol import AGENT_PORT
from models.database import connection
from models.nodes import PortBinding
from models.operations import Operation
from models.sandboxes import Sandbox
from services.hosts.nodes import heartbeat
from tests.stack.edge import NODE

SANDBOXES = "/v1/sandboxes"
APART = replace(NODE, agent_port_low=30000, agent_port_high=30999)


def bindings(sandbox_id):
    with connection():
        rows = PortBinding.select().where(PortBinding.sandbox_id == sandbox_id)
        return {row.guest_port: row.host_port for row in rows}


def create(nodeless, owner):
    answer = nodeless.api.post(SANDBOXES, json={"ports": [3000]}, headers=nodeless.key(owner))
    assert answer.status_code == 201
    return answer.json


def test_an_agent_and_a_tenant_s_port_come_from_different_ranges(nodeless, owner):
    heartbeat(APART)
    made = create(nodeless, owner)
    bound = bindings(made["id"])
    assert 30000 <= bound[AGENT_PORT] <= 30999 and 20000 <= bound[3000] <= 29999
    assert made["portMap"] == {str(bound[3000]): 3000}


def test_a_wake_moves_an_agent_that_has_a_port_among_the_tenants(nodeless, owner):
    heartbeat(NODE)
    sandbox_id = create(nodeless, owner)["id"]
    before = bindings(sandbox_id)
    with connection():
        Operation.delete().where(Operation.sandbox_id == sandbox_id).execute()
        Sandbox.update(status="hibernated", task=None).where(Sandbox.id == sandbox_id).execute()
    heartbeat(APART)
    nodeless.api.post(f"{SANDBOXES}/{sandbox_id}/wake", headers=nodeless.key(owner))
    after = bindings(sandbox_id)
    assert 20000 <= before[AGENT_PORT] <= 29999 and 30000 <= after[AGENT_PORT] <= 30999
    assert after[3000] == before[3000], "a tenant's port stays"
    with connection():
        assert Sandbox.get_by_id(sandbox_id).agent_port == after[AGENT_PORT]
