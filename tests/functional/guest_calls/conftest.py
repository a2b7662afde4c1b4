"""A sandbox whose row says that it runs, and a real guest agent."""
import pytest

from models.database import connection
from models.sandboxes import Sandbox
from tests.host.agent_process import TOKEN, start_agent, stop_agent


@pytest.fixture
def running_id(edge):
    """Its id; no node has it."""
    made = edge.api.post("/v1/sandboxes", json={},
                         headers=edge.key(edge.user("alice"))).json["id"]
    with connection():
        Sandbox.update(status="running", task=None).where(Sandbox.id == made).execute()
    return made


@pytest.fixture
def agent(tmp_path):
    """It runs on a directory of this machine."""
    for directory in ("opt/svc", "home/user", "etc", "run", "var/log"):
        (tmp_path / directory).mkdir(parents=True)
    (tmp_path / "opt/svc/initial-token").write_text(TOKEN)
    running = start_agent(tmp_path)
    yield running
    stop_agent(running)
