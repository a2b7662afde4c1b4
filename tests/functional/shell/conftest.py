"""A sandbox of alice's whose guest is a real agent on this machine, with real terminals."""
import pytest

from tests.clients.shells import ShellClient, url_of
from tests.host.shell_guest import point_at, running_agent


@pytest.fixture(scope="module")
def agent():
    """A guest of this module's; a wake leads back to the simulated one."""
    with running_agent() as running:
        yield running


@pytest.fixture(scope="module")
def box(alice, sim_stack, agent):
    """Id of a running sandbox of alice's with a real agent."""
    made = alice.create()["id"]
    point_at(sim_stack, made, agent)
    yield made
    alice.delete(f"/v1/sandboxes/{made}")


@pytest.fixture
def url(sim_stack, box):
    return url_of(sim_stack, box)


@pytest.fixture
def shell(url, alice):
    """An open shell of alice's."""
    with ShellClient(url, alice.key_headers) as opened:
        yield opened
