"""Empty rows with three users and a node of 64 vCPUs; operations end when the test ends them."""
import itertools
import os
from contextlib import contextmanager
from dataclasses import replace

import pytest

from bin.stack.free_ports import free_port
from config.settings import Settings
from models.database import connection, database
from models.nodes import Node, PortBinding
from models.operations import IdempotencyKey, Operation, OutboxMessage
from models.sandboxes import Activity, Sandbox
from models.snapshots import Snapshot
from models.states import Plan, SandboxStatus
from models.users import User
from nodeworker.hypervisor.driver import MachineSpec, Shape
from nodeworker.hypervisor.simulated.__main__ import LOCK_NAME
from nodeworker.hypervisor.simulated.driver import SimulatedDriver
from nodeworker.wiring import NodeDeps
from services.errors import Unavailable
from services.hosts.nodes import NodeFacts, heartbeat
from services.protocols import Deps
from services.sandboxes import create, lifecycle
from tasks.wiring import no_guest
from tests.fakes.outside import ListQueue
from tests.rows.operations import CREATE, boot, caller, succeed

TABLES = (Activity, Operation, OutboxMessage, IdempotencyKey, PortBinding, Snapshot, Sandbox, Node,
          User)
_COUNT = itertools.count()


@pytest.fixture
def deps(fresh_rows):
    with connection():
        database.execute_sql("TRUNCATE " + ", ".join(model._meta.table_name
                                                     for model in TABLES) + " CASCADE")
        User.create(id="alice", email="alice@example.org", password_hash="x", plan=Plan.LEGACY_PRO)
        User.create(id="bob", email="bob@example.org", password_hash="x", plan=Plan.FREE)
        User.create(id="mallory", email="mallory@example.org", password_hash="x",
                    plan=Plan.LEGACY_PRO)
    heartbeat(NodeFacts("n1", "127.0.0.1", 64, 4096, 20000, 20099, {}))
    settings = Settings(operation_wait_s=0.3, operation_sweep_s=0.01)
    return Deps(settings, ListQueue(), no_guest)


@pytest.fixture
def node(deps, tmp_path):
    """The worker side of the node, with simulated machines; they end with the test."""
    settings = replace(deps.settings, node_id="n1", node_dir=tmp_path, node_address=_own_address())
    yield NodeDeps(settings, SimulatedDriver(settings), deps.queue, None)
    (tmp_path / "simulator" / LOCK_NAME).unlink(missing_ok=True)


def _own_address():
    """On the loopback device, of this test alone: the rows of every test hand out the same few
    ports, and the machines of another test may still hold them."""
    high, low = divmod(os.getpid() % 2 ** 16, 2 ** 8)
    return f"127.{high}.{low}.{2 + next(_COUNT) % 250}"


@pytest.fixture
def away(deps):
    """Within `away()` there is no database."""
    @contextmanager
    def is_away():
        told = dict(database.connect_params)
        database.close_all()
        try:
            database.connect_params |= {"host": "127.0.0.1", "port": 1}
            yield
        finally:
            database.connect_params.clear()
            database.connect_params.update(told)
    return is_away


@pytest.fixture
def made(deps):
    """The id of a sandbox whose boot waits for a worker."""
    return create.create(deps, caller("alice"), CREATE).id


@pytest.fixture
def asleep(deps, node):
    """The id of a sandbox that sleeps by its row, while its machine runs."""
    sandbox_id = boot(deps)
    with pytest.raises(Unavailable):
        lifecycle.hibernate(deps, caller("alice"), sandbox_id)
    succeed(sandbox_id, SandboxStatus.HIBERNATED)
    node.driver.create(MachineSpec(sandbox_id, Shape(1, 1024), "token-0123456789", free_port()))
    yield sandbox_id
    node.driver.destroy(sandbox_id)
