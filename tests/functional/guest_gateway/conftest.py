"""The guest gateway of the simulated stack with two upstreams, and who asks it: two guests of
alice's, and a service by the API's host."""
import os

import httpx
import pytest

from models.database import connect, connection, database
from models.users import User
from tests.clients.guest_gateway import Asker, config_of, running_gateway
from tests.fakes.llm_upstream import LlmUpstream
from tests.fakes.npm_registry import NpmRegistry
from tests.host.guest_places import guest_places
from tests.stack.credentials import bearer
from tests.tls.clients import client


@pytest.fixture(scope="module")
def upstreams():
    made = LlmUpstream(), LlmUpstream()
    yield made
    for one in made:
        one.close()


@pytest.fixture(scope="module")
def registry():
    made = NpmRegistry("/of/all")
    yield made
    made.close()


@pytest.fixture(scope="module")
def gateway(sim_stack, upstreams, registry, tmp_path_factory):
    """Its process, and the file of what it says."""
    connect(sim_stack.settings.database_url, pool_size=5)
    directory = tmp_path_factory.mktemp("gateway")
    with running_gateway(sim_stack, config_of(*upstreams), directory,
                         SVC_NPM_REGISTRY=registry.url) as running:
        yield running
    database.close_all()


@pytest.fixture(scope="module")
def log(gateway):
    """What the gateway says."""
    return gateway[1]


@pytest.fixture(scope="module")
def askers(sim_stack, alice, log):
    """Two guests of alice's."""
    port = sim_stack.settings.guest_gateway_port
    # Of a network of its own: other processes of a parallel run have theirs at the same time.
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
    with guest_places(f"tll{number}", f"10.253.{number}.0/24", port, count=2) as places:
        made = [Asker(sim_stack, alice.create()["id"], place) for place in places]
        yield made
    for one in made:
        alice.delete(f"/v1/sandboxes/{one.sandbox_id}")


@pytest.fixture
def asker(askers):
    return askers[0]


@pytest.fixture
def upstream(upstreams):
    """The first upstream, as it is by default."""
    for one in upstreams:
        one.words, one.hidden, one.pause_s = 5, 0, 0.0
        one.cut_after = one.error_after = None
        one.refusals.clear()
        one.seen.clear()
    return upstreams[0]


@pytest.fixture(scope="module")
def token(sim_stack, log):
    """A service's."""
    return sim_stack.run("python -m app.operator service-token-mint tests").split()[-1]


@pytest.fixture(scope="module")
def alice_id(log, alice):
    """For whom a service may act."""
    with connection():
        return User.get(User.email == alice.email).id


@pytest.fixture(params=["port", "edge"])
def http(request, sim_stack, token, log):
    """A client of the API that acts as a service."""
    if request.param == "edge":
        made = client(sim_stack, "localhost")
    else:
        made = httpx.Client(base_url=sim_stack.api_url, trust_env=False, timeout=60)
    made.headers.update(bearer(token))
    with made:
        yield made
