"""Empty rows with three users and a node of 64 vCPUs; operations end when the test ends them."""
import pytest

from config.settings import Settings
from models.database import connection, database
from models.nodes import Node, PortBinding
from models.operations import IdempotencyKey, Operation, OutboxMessage
from models.sandboxes import Activity, Sandbox
from models.snapshots import Snapshot
from models.states import Plan
from models.users import User
from services.hosts.nodes import NodeFacts, heartbeat
from services.protocols import Deps
from tasks.wiring import no_guest
from tests.fakes.outside import ListQueue

TABLES = (Activity, Operation, OutboxMessage, IdempotencyKey, PortBinding, Snapshot, Sandbox, Node,
          User)


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
