"""What the contract and decisions.md say about exec, against a real agent."""
import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from guest.client.agent_client import AgentClient
from guest.client.errors import AgentRefused
from tests.host.agent_process import TOKEN
from tests.host.agent_wire import Wire
from tests.stack.waiting import becomes, eventually, is_alive, until


def test_output_streams_and_exit_code_are_kept_apart(client: AgentClient) -> None:
    result = client.exec(["/bin/sh", "-c", "printf out; printf err >&2; exit 7"])
    assert (result.stdout, result.stderr, result.exit_code) == (b"out", b"err", 7)
    assert not result.timed_out and not result.stdout_truncated and not result.stderr_truncated


def test_a_shell_line_is_run_by_bash(client: AgentClient) -> None:
    assert client.exec(
        shell='echo {1..3}; [[ a == a ]] && echo "$0"').stdout == b"1 2 3\n/bin/bash\n"


def test_bytes_come_through_unchanged(client: AgentClient, agent) -> None:
    content = os.urandom(300_000)
    (agent.root / "home/user/blob").write_bytes(content)
    assert client.exec(["cat", "blob"]).stdout == content


def test_it_starts_as_root_at_home_with_an_environment_of_its_own(
    client: AgentClient, agent
) -> None:
    result = client.exec(shell='echo "$HOME|$USER|$PWD|$MINE|${PYTHONPATH-none}"',
                         env={"MINE": "a b"})
    assert result.stdout.decode().strip() == f"/root|root|{agent.root}/home/user|a b|none"


def test_cwd_is_used_and_a_missing_one_is_refused(client: AgentClient, agent) -> None:
    (agent.root / "srv").mkdir()
    assert client.exec(["pwd"], cwd="/srv").stdout.decode().strip() == f"{agent.root}/srv"
    with pytest.raises(AgentRefused) as refusal:
        client.exec(["pwd"], cwd="/nowhere")
    assert refusal.value.code == "not_found"


def test_standard_input_is_empty(client: AgentClient) -> None:
    assert client.exec(["cat"]).exit_code == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV])
def test_death_by_a_signal_is_128_and_its_number(client: AgentClient,
                                                 number: signal.Signals) -> None:
    assert client.exec(shell=f"kill -{number.value} $$").exit_code == 128 + number


def test_a_program_that_does_not_exist_is_127_with_a_sentence(client: AgentClient) -> None:
    result = client.exec(["no-such-program"])
    assert result.exit_code == 127
    assert b"no-such-program: not found" in result.stderr


@pytest.mark.parametrize("content", ["#!/bin/sh\n", "not a program"], ids=["no x bit", "no format"])
def test_a_file_that_cannot_be_executed_is_126_with_a_sentence(client: AgentClient, agent,
                                                               content: str) -> None:
    program = agent.root / "home/user/program"
    program.write_text(content)
    program.chmod(0o644 if content.startswith("#!") else 0o755)
    result = client.exec([str(program)])
    assert result.exit_code == 126
    assert b"cannot be executed" in result.stderr


def test_the_deadline_kills_the_whole_group_and_keeps_partial_output(client: AgentClient) -> None:
    result = client.exec(shell="sleep 600 & echo $!; echo partial >&2; sleep 600", timeout_ms=3000)
    assert (result.exit_code, result.timed_out, result.stderr) == (124, True, b"partial\n")
    child = int(result.stdout)
    assert eventually(lambda: not is_alive(child)), "a child of the command survived its deadline"


def test_the_deadline_kills_the_group_also_without_its_peer(client: AgentClient, agent) -> None:
    home = agent.root / "home/user"
    wire = Wire(agent.port)
    wire.request("exec", TOKEN, timeoutMs=5000, shell="sleep 600 & echo $! > child; echo $$ > new;"
                 " mv new pid; until [ -e gate ]; do sleep 0.02; done; touch on; sleep 600")
    until((home / "pid").exists)
    wire.socket.close()
    client.exec(["true"])
    (home / "gate").touch()
    until((home / "on").exists)
    for name in ("child", "pid"):
        becomes(partial(is_alive, int((home / name).read_text())), False)


def test_a_command_that_ignores_termination_does_not_outlive_the_deadline(
        client: AgentClient) -> None:
    result = client.exec(shell="trap '' TERM INT HUP; while :; do sleep 0.05; done", timeout_ms=300)
    assert result.exit_code == 124


def test_a_background_child_neither_holds_the_reply_nor_is_harmed(client: AgentClient) -> None:
    result = client.exec(shell="sleep 600 & echo $!", timeout_ms=60_000)
    child = int(result.stdout)
    try:
        assert result.exit_code == 0 and not result.timed_out
        assert is_alive(child), "the child that was left in the background is gone"
    finally:
        os.kill(child, signal.SIGKILL)


def test_all_output_of_the_command_itself_arrives_although_a_child_holds_the_pipe(
        client: AgentClient) -> None:
    result = client.exec(shell="sleep 600 & echo $! >&2; head -c 50000 /dev/zero")
    os.kill(int(result.stderr), signal.SIGKILL)
    assert len(result.stdout) == 50_000


def test_a_background_child_that_never_stops_writing_does_not_hold_the_reply(
        client: AgentClient) -> None:
    result = client.exec(shell="yes & echo $! >&2", cap_bytes=1000)
    os.kill(int(result.stderr), signal.SIGKILL)
    assert result.exit_code == 0


@pytest.mark.parametrize("cap", [0, 1, 100_000])
def test_output_beyond_the_cap_is_dropped_and_marked_but_the_command_finishes(
        client: AgentClient, agent, cap) -> None:
    result = client.exec(shell="head -c 3000000 /dev/zero; printf e >&2; touch done", cap_bytes=cap)
    assert len(result.stdout) == cap
    assert result.stdout_truncated and result.exit_code == 0
    assert result.stderr_truncated is (cap < 1)
    assert (agent.root / "home/user/done").exists()


def test_output_of_exactly_the_cap_is_not_marked(client: AgentClient) -> None:
    result = client.exec(shell="head -c 1000 /dev/zero", cap_bytes=1000)
    assert len(result.stdout) == 1000 and not result.stdout_truncated


def test_a_detached_command_answers_at_once_and_logs_its_output(client: AgentClient, agent) -> None:
    result = client.exec(shell="echo begun; until [ -e gate ]; do sleep 0.02; done; echo over >&2",
                         detached=True)
    # The command ends only after this test has opened the gate, so the reply cannot have waited for
    # it.
    assert result.exit_code == 0 and result.pid and result.log_path
    log = Path(f"{agent.root}{result.log_path}")
    assert eventually(lambda: log.read_text() == "begun\n")
    (agent.root / "home/user/gate").touch()
    assert eventually(lambda: log.read_text() == "begun\nover\n")


def test_two_detached_commands_have_two_logs(client: AgentClient) -> None:
    first, second = (client.exec(["true"], detached=True) for _ in range(2))
    assert first.log_path != second.log_path


def test_a_detached_program_that_does_not_exist_is_127_and_the_log_says_why(
        client: AgentClient, agent) -> None:
    result = client.exec(["no-such-program"], detached=True)
    assert result.exit_code == 127
    assert "not found" in Path(f"{agent.root}{result.log_path}").read_text()


def test_a_detached_command_leaves_no_zombie(client: AgentClient) -> None:
    result = client.exec(["true"], detached=True)
    assert eventually(lambda: not Path(f"/proc/{result.pid}").exists())


@pytest.fixture
def own_program(root: Path) -> str:
    """A Python program of the service, which says how it was started once it may end."""
    path = root / "opt/svc/program.py"
    path.write_text(
        "import json, os, sys, time\n"
        "open_files = sorted(map(int, os.listdir('/proc/self/fd')))\n"
        "told = {'name': __name__, 'argv': sys.argv[1:], 'env': dict(os.environ),\n"
        "        'cwd': os.getcwd(), 'files': open_files, 'session': os.getsid(0) == os.getpid(),\n"
        "        'spared': open('/proc/self/oom_score_adj').read().strip() != '0',\n"
        "        'argv0': open('/proc/self/cmdline').read().split(chr(0))[1:3]}\n"
        "print(json.dumps(told), flush=True)\n"
        "sys.stdin.read()\n"
        "sys.exit('the end')\n")
    return str(path)


def test_an_own_program_runs_in_a_fork_of_the_agent_as_if_it_had_been_started(
        client: AgentClient, agent, own_program: str) -> None:
    Path(f"/proc/{agent.process.pid}/oom_score_adj").write_text("500")
    result = client.exec(["python3", "-IS", own_program, "one", "two"], detached=True,
                         env={"GIVEN": "yes"})
    assert result.exit_code == 0 and result.pid
    log = Path(f"{agent.root}{result.log_path}")
    assert eventually(lambda: "the end" in log.read_text())
    told = json.loads(log.read_text().splitlines()[0])
    plain = client.exec(["env"], env={"GIVEN": "yes"}).stdout.decode().splitlines()
    assert told["argv0"] == agent.process.args[1:3], "no interpreter was started"
    assert told["name"] == "__main__" and told["argv"] == ["one", "two"]
    assert sorted(f"{key}={value}" for key, value in told["env"].items()) == sorted(plain)
    assert told["cwd"] == f"{agent.root}/home/user" and told["session"] and not told["spared"]
    assert told["files"][:3] == [0, 1, 2] and len(told["files"]) == 4, "the fourth lists them"
    assert eventually(lambda: not Path(f"/proc/{result.pid}").exists())
    assert client.ping()


def test_an_own_program_that_breaks_says_so_in_its_log(
        client: AgentClient, agent, root: Path) -> None:
    (root / "opt/svc/broken.py").write_text("raise KeyError('lost')\n")
    result = client.exec(["python3", "-IS", f"{root}/opt/svc/broken.py"], detached=True)
    log = Path(f"{agent.root}{result.log_path}")
    assert eventually(lambda: "KeyError: 'lost'" in log.read_text())
    assert eventually(lambda: not Path(f"/proc/{result.pid}").exists())


def test_a_hundred_commands_at_once(client: AgentClient) -> None:
    with ThreadPoolExecutor(100) as pool:
        results = list(
            pool.map(lambda n: client.exec(shell=f"sleep 1; echo {n}; exit {n % 100}"), range(100)))
    assert [(int(result.stdout), result.exit_code) for result in results] == [
        (n, n % 100) for n in range(100)
    ]


def test_nothing_is_left_open_after_many_commands(client: AgentClient, agent) -> None:
    before = agent.descriptors()
    for _ in range(30):
        client.exec(["true"])
        client.exec(["no-such-program"])
    assert eventually(lambda: agent.descriptors() == before)
