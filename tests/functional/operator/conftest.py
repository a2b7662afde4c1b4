"""Flower, which the shared stacks do without."""
import pytest

from bin.stack import free_ports
from tests.stack.waiting import until


@pytest.fixture(scope="module")
def flower(sim_stack):
    """Its address, while it runs."""
    sim_stack.start("flower")
    until(lambda: not free_ports.is_free(sim_stack.settings.flower_port))
    yield f"http://127.0.0.1:{sim_stack.settings.flower_port}"
    sim_stack.stop("flower")
