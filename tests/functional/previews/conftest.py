"""A web server that simulated sandboxes serve as theirs."""
import pytest

from tests.stack.previews import Served


@pytest.fixture
def served():
    server = Served()
    yield server
    server.close()


@pytest.fixture
def another():
    """Another one, which says another nonce."""
    server = Served()
    yield server
    server.close()


@pytest.fixture
def preview(sim_stack, alice, served):
    """The preview of a running sandbox of alice's."""
    made = served.preview(sim_stack, alice)
    yield made
    made.delete()
