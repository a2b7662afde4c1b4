"""A sandbox whose row says that it runs."""
import pytest

from models.database import connection
from models.sandboxes import Sandbox


@pytest.fixture
def running_id(edge):
    """Its id; no node has it."""
    made = edge.api.post("/v1/sandboxes", json={},
                         headers=edge.key(edge.user("alice"))).json["id"]
    with connection():
        Sandbox.update(status="running", task=None).where(Sandbox.id == made).execute()
    return made
