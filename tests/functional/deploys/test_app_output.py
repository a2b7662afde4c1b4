"""What an app's process has written, read at a real agent: the end of it, while the app runs."""
import dataclasses

import pytest

from models.database import connection
from models.deploys import Deploy
from models.sandboxes import Activity, Sandbox
from models.states import SandboxStatus
from nodeworker.deploys import app_process
from services.deploys.apps import output
from services.errors import Conflict, NotFound, Unavailable
from tests.host.agent_process import TOKEN, start_agent, stop_agent
from tests.rows import operations


@pytest.fixture
def agent(tmp_path):
    token = tmp_path / "opt" / "svc" / "initial-token"
    token.parent.mkdir(parents=True)
    token.write_text(TOKEN)
    running = start_agent(tmp_path)
    yield running
    stop_agent(running)


@pytest.fixture
def read(deps, ask, agent, tmp_path, monkeypatch):
    """Reads the output of the app hello, whose process has written to a file of this machine."""
    ask()
    sandbox = operations.boot(deps)
    monkeypatch.setattr(output, "PATH", str(tmp_path / "app.log"))
    with connection():
        Sandbox.update(agent_token=TOKEN).where(Sandbox.id == sandbox).execute()
        Deploy.update(live_sandbox_id=sandbox, live_static=False).execute()
    told = dataclasses.replace(
        deps, connect_guest=lambda address, port, token: agent.client(token))

    def lines(number=3):
        return output.read(told, None, "hello", number)

    lines.sandbox = sandbox
    return lines


def test_the_last_lines_while_it_runs_and_nothing_is_woken_or_kept_awake(read, tmp_path, deps):
    assert read() == "", "nothing was written yet"
    (tmp_path / "app.log").write_bytes(b"one\ntwo\nthree\nfour \xff\n")
    with connection():
        before = Sandbox.select().where(Sandbox.id == read.sandbox).dicts().get()
    assert read() == "two\nthree\nfour \ufffd\n"
    with connection():
        assert Sandbox.select().where(Sandbox.id == read.sandbox).dicts().get() == before
        assert not Activity.select().exists()
        Sandbox.update(status=SandboxStatus.HIBERNATED).execute()
    sent = len(deps.queue.sent)
    with pytest.raises(Conflict, match="hello is hibernated"):
        read()
    assert len(deps.queue.sent) == sent


def test_it_is_the_log_that_the_node_has_written():
    assert output.PATH == app_process.LOG


def test_long_lines_are_cut(read, tmp_path):
    (tmp_path / "app.log").write_text("x" * (output.BYTES_MOST + 1000) + "end")
    said = read(1)
    assert len(said) == output.BYTES_MOST and said.endswith("end")


def test_a_guest_that_does_not_answer(read, agent):
    agent.process.kill()
    with pytest.raises(Unavailable):
        read()


def test_no_process_and_no_app(deps, ask):
    ask()
    with pytest.raises(Conflict, match="no process of its own"):
        output.read(deps, None, "hello", 1)
    with pytest.raises(NotFound):
        output.read(deps, None, "none", 1)
