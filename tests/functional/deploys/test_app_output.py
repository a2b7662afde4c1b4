"""What an app's process has written, read at a real agent: the end of it, while the app runs."""
import dataclasses

import pytest

from models.database import connection
from models.deploys import Deploy
from models.sandboxes import Activity, Sandbox
from models.states import SandboxStatus
from models.users import User
from nodeworker.deploys import app_process
from services.deploys import masked_secrets, variables
from services.deploys.apps import output, process_facts
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
    monkeypatch.setattr(process_facts, "LOG", str(tmp_path / "app.log"))
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


def test_long_lines_are_cut(read, tmp_path):
    (tmp_path / "app.log").write_text("x" * (output.BYTES_MOST + 1000) + "end")
    said = read(1)
    assert len(said) == output.BYTES_MOST and said.endswith("end")


@pytest.fixture
def secret(deps, ask, read):
    """Gives the app hello two secrets of three lines each, and returns the longer one."""
    value = "-----BEGIN KEY-----\n  c2VjcmV0IG9m\n-----END KEY-----"
    with connection():
        alice = User.get_by_id("alice")
    variables.put(deps, alice, "hello", "KEY", value, secret=True)
    variables.put(deps, alice, "hello", "CODES", "123\n456\n789", secret=True)
    return value


@pytest.mark.parametrize("said", [
    "{secret}\n", "c2VjcmV0IG9m\n", "-----END KEY-----\n", "{secret}" + "x" * 20,
    "{secret}" + "\n" * 3, "c2VjcmV0IG9m" * 3 + "\n"])
def test_no_part_of_a_secret_is_shown_wherever_the_text_is_cut(read, secret, tmp_path, monkeypatch,
                                                               said):
    (tmp_path / "app.log").write_text("y" * 100 + "\n" + said.format(secret=secret))
    parts = {secret[at:at + 6] for at in range(len(secret) - 5)}
    for most_bytes in range(6, 70, 9):
        monkeypatch.setattr(output, "BYTES_MOST", most_bytes)
        for lines in (1, 2, 3):
            shown = read(lines)
            assert not [part for part in parts if part in shown], (most_bytes, lines)
            assert len(shown) <= 3 * most_bytes


def test_lines_are_counted_after_that(read, secret, tmp_path):
    (tmp_path / "app.log").write_text("0\n123\n456\n789\nend\n")
    assert read(3) == "***\n***\nend\n" and read(9) == "0\n***\n***\n***\nend\n"


def test_a_secret_whose_first_half_is_in_the_log_before(read, secret, tmp_path):
    (tmp_path / "app.log.1").write_text("before\n-----BEGIN KEY-----\n  c2VjcmV")
    (tmp_path / "app.log").write_text("0IG9m\n-----END KEY-----\nafter\n")
    assert read(9) == "before\n***\n***\n***\nafter\n"
    assert read(2) == "***\nafter\n"


def test_the_error_of_a_deploy_begins_with_no_half_of_a_secret(agent, tmp_path, monkeypatch):
    monkeypatch.setattr(process_facts, "LOG", str(tmp_path / "app.log"))
    secrets, most_bytes = masked_secrets.Secrets(["hunter2hunter2"]), app_process._SAID_BYTES
    for after in range(most_bytes - 14, most_bytes + 1):
        (tmp_path / "app.log").write_text("before hunter2hunter2" + "x" * after)
        said = app_process.last_said(agent.client(TOKEN), secrets)
        assert said.lstrip("*").strip("x") in ("", " ") and said.endswith("x" * (most_bytes - 14))


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
