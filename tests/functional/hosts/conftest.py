"""The API over a real Postgres, without a node: whoever waits for an operation gives up at once."""
import pytest

from services.hosts.nodes import heartbeat
from tests.stack.edge import NODE, make_edge


@pytest.fixture(scope="module")
def nodeless(postgres_url, redis_url, tmp_path_factory):
    """Both hosts; the node `n1` reports what a test says."""
    yield from make_edge(postgres_url, redis_url, tmp_path_factory.mktemp("keys"),
                         operation_wait_s=0.1)


@pytest.fixture
def owner(nodeless):
    """A new account, and a node that has room."""
    heartbeat(NODE)
    return nodeless.newcomer()
