"""The agent server's launch in the guest: its files, its environment and its first callback."""
import json
import os
import pwd
import socket

import pytest

from bin.stack.free_ports import free_port
from guest.agentserver import run_agent_server, start_agent_server


@pytest.fixture
def directory(tmp_path):
    """Hands a configuration over, as the host's file and the guest's command do."""
    def make(**content):
        whole = {
            "sandboxId": "box", "source": "true", "bootstrap": None, "cwd": str(tmp_path),
            "env": {}
        } | content
        (tmp_path / start_agent_server.CONFIGURATION_NAME).write_text(json.dumps(whole))
        start_agent_server.hand_over(tmp_path, pwd.getpwuid(os.getuid()))
        return tmp_path

    return make


def test_the_token_is_in_one_file_that_only_its_user_reads(directory):
    place = directory(bootstrap={"callbackToken": "hunter2", "model": "m"})
    assert json.loads((place / "bootstrap.json").read_text()) == {
        "callbackToken": "hunter2", "model": "m", "sandboxId": "box"}
    assert "hunter2" not in (place / "launch.json").read_text()
    assert [path.stat().st_mode & 0o777 for path in (place, *sorted(place.iterdir()))] == [
        0o700, 0o600, 0o600,
    ]
    assert not (directory(bootstrap=None) / "bootstrap.json").exists(), "an earlier one goes"


# Until it is told, and long enough for a second time.
WAIT = "while [ ! -e told ]; do sleep 0.1; done; sleep 1.5"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "bootstrap", "told"),
    [
        (WAIT, {}, ["agent_server_ready"]), ("exit 5", {}, []), ("sleep 1", None, []),
        (
            f"exec python3 -m http.server --bind 127.0.0.1 $PORT & {WAIT}",
            "port",
            ["agent_server_ready"],
        ),
        ("sleep 1", "port", []),
    ],
)
def test_ready_is_told_once_and_only_if_it_is(directory, monkeypatch, source, bootstrap, told):
    port = free_port()
    content = {"readinessPort": port} if bootstrap == "port" else bootstrap
    if source == "exit 5":  # it ends as soon as that has ended, however slow the host
        monkeypatch.setattr(run_agent_server, "SETTLED_S", 20.0)
    place, heard = directory(source=source + "; kill %1 2>/dev/null", bootstrap=content,
                             env={"PORT": str(port)}), []

    def tell(kind, payload, file):
        heard.append(kind)
        (place / "told").touch()
        return 0, "told"

    run_agent_server.serve(place, tell)
    assert heard == told


def test_what_is_not_ready_within_60_s_is_not_told(directory, monkeypatch):
    assert run_agent_server.READY_LIMIT_S == 60
    monkeypatch.setattr(run_agent_server, "READY_LIMIT_S", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as late:
        port = late.getsockname()[1]
        place, heard = directory(source="sleep 0.3", bootstrap={"readinessPort": port}), []
        run_agent_server.serve(place, lambda kind, *_: (heard.append(kind), "told"))
    assert heard == []


def test_the_server_sees_its_sandbox_its_file_and_the_owners_variables(directory):
    place = directory(source="env > seen; exit 7", bootstrap={},
                      env={"MINE": "a b", "LANG": "mine"})
    assert run_agent_server.serve(place, lambda *_: (0, "")) == 7
    seen = set((place / "seen").read_text().splitlines())
    assert {
        "SVC_SANDBOX_ID=box", f"SVC_AGENT_BOOTSTRAP={place}/bootstrap.json", "MINE=a b",
        "LANG=mine", "USER=user", "HOME=/home/user"
    } <= seen
