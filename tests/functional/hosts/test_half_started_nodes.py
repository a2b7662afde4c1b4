"""A node whose lane for sandboxes does not work is given none, however well its heart beats."""
import pytest
from click.testing import CliRunner

from app.operator.nodes import node_list
from services.hosts.nodes import heartbeat
from tests.stack.edge import NODE


@pytest.fixture
def owner(edge):
    yield edge.newcomer()
    heartbeat(NODE)


def create(edge, owner):
    return edge.api.post("/v1/sandboxes", json={"size": "small"}, headers=edge.key(owner))


def test_without_its_ops_lane_a_node_gets_no_sandbox(edge, owner):
    heartbeat(NODE, ["ctl", "bulk", "archive"])
    refused = create(edge, owner)
    assert refused.status_code == 503 and refused.headers["Retry-After"]
    assert "works" in refused.json["error"]
    heartbeat(NODE, ["ctl", "ops"])
    assert create(edge, owner).status_code == 201


def test_a_pin_to_it_is_503_too(edge, owner):
    heartbeat(NODE, [])
    pinned = {**edge.key(owner), "X-Svc-Node": NODE.id}
    refused = edge.api.post("/v1/sandboxes", json={"size": "small"}, headers=pinned)
    assert refused.status_code == 503


def test_operators_see_which_lanes_work(edge, owner, monkeypatch):
    heartbeat(NODE, ["ctl", "bulk"])
    monkeypatch.setattr("app.operator.nodes.get_settings", lambda: edge.settings)
    shown = CliRunner().invoke(node_list).output
    assert "bulk, ctl" in shown and "ops" not in shown
