"""How many host ports one owner may hold of a node, and what counts as theirs."""
import pytest

from guest.agent.protocol import AGENT_PORT
from models.states import SandboxKind
from services.hosts.port_room import PortsWanted, most_of
from services.hosts.sandbox_ports import Bearer


@pytest.mark.parametrize(("ports", "most"), [
    (range(20000, 30000), 5000), (range(30000, 32700), 1350), (range(7), 3), (range(1), 1)])
def test_an_owner_may_hold_half_of_a_range(ports, most):
    assert most_of(ports) == most


@pytest.mark.parametrize(("kind", "whose"), [
    (SandboxKind.API, "alice"), (SandboxKind.APP, "alice"), (SandboxKind.BUILDER, None),
    (SandboxKind.RUNTIME, None)])
def test_what_the_service_makes_for_itself_is_of_nobodys_share(kind, whose):
    bearer = Bearer("box", "alice", kind)
    assert bearer.wants((AGENT_PORT, 3000, 3000, 4000)) == PortsWanted(whose, 2, agents=1)
    assert bearer.wants((3000,)) == PortsWanted(whose, 1, agents=0)
