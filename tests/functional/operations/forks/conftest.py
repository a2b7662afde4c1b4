"""A running sandbox on a node whose worker is the test itself."""
from dataclasses import replace

import pytest

from nodeworker.hypervisor.simulated.driver import SimulatedDriver
from nodeworker.wiring import NodeDeps
from tests.rows.operations import boot


@pytest.fixture
def node(deps, tmp_path):
    settings = replace(deps.settings, node_id="n1", node_dir=tmp_path)
    return NodeDeps(settings, SimulatedDriver(settings), deps.queue, None)


@pytest.fixture
def source(deps):
    made = boot(deps)
    deps.queue.sent.clear()
    return made
