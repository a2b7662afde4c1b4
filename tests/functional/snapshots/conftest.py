"""The rows, the store and the node's files of the simulated stack, as its processes see them."""

import pytest

from models.database import connect, database
from nodeworker.hypervisor.factory import make_driver
from objects.store import ObjectStore
from services.protocols import Deps
from tasks.wiring import no_guest
from tests.fakes.outside import ListQueue


@pytest.fixture
def rows(sim_stack):
    """The stack's database, as a process of its own sees it."""
    connect(sim_stack.settings.database_url, pool_size=5)
    yield
    database.close_all()


@pytest.fixture
def store(sim_stack):
    return ObjectStore(sim_stack.settings)


@pytest.fixture
def driver(sim_stack):
    return make_driver(sim_stack.settings)


@pytest.fixture
def deps(sim_stack, rows):
    """Use cases on the stack's rows; the stack's own sweep announces what they begin."""
    return Deps(sim_stack.settings, ListQueue(), no_guest)
