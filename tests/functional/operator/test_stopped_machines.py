"""Of the machines that stand stopped on a node Prometheus is told what operators are."""
import pytest
from click.testing import CliRunner

from app.operator.nodes import node_list
from services.hosts import metrics, nodes
from services.prometheus import text_of
from tests.stack.edge import NODE


@pytest.fixture
def told(edge):
    """The node has told how many there are."""
    nodes.heartbeat(NODE)
    nodes.write_stopped_machines(NODE.id, {"kept": 3, "spares": 2, "prepared": 0})
    yield
    nodes.write_stopped_machines(NODE.id, {})


def test_a_gauge_for_each_node_and_kind(edge, told, monkeypatch):
    heading, kind, *lines = text_of(metrics.families()).splitlines()
    assert heading.startswith("# HELP svc_stopped_machines ")
    assert kind == "# TYPE svc_stopped_machines gauge"
    assert sorted(line for line in lines if f'"{NODE.id}"' in line) == [
        'svc_stopped_machines{node="n1",kind="kept"} 3',
        'svc_stopped_machines{node="n1",kind="prepared"} 0',
        'svc_stopped_machines{node="n1",kind="spares"} 2']
    monkeypatch.setattr("app.operator.nodes.get_settings", lambda: edge.settings)
    assert "3 kept, 2 spares" in CliRunner().invoke(node_list).output
