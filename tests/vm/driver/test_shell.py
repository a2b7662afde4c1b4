"""A shell in a real guest: its user, its terminal, what ends it and what it ends."""
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from guest.client.agent_client import AgentClient
from tests.host.driver_lab import Lab
from tests.host.shell_reading import pid_of, read_until, run
from tests.stack.waiting import eventually

PROMPT = r"box\d+: ~"


@pytest.fixture(scope="module")
def guest(qemu_lab: Lab) -> Iterator[tuple[Lab, object]]:
    """One sandbox for the tests here."""
    spec = qemu_lab.create()
    yield qemu_lab, spec
    qemu_lab.driver.destroy(spec.sandbox_id)


@pytest.fixture
def agent(guest) -> AgentClient:
    lab, spec = guest
    return lab.agent(spec)


def lives(agent: AgentClient, pid: int) -> bool:
    return agent.exec(shell=f"kill -0 {pid}").exit_code == 0


def test_it_is_a_login_of_the_user_in_the_directory_asked_for(agent: AgentClient) -> None:
    agent.exec(shell="usermod -aG adm user; install -d -o user /home/user/project")
    with agent.open_shell(100, 30, cwd="/home/user/project", env={"SVC_MINE": "a b"}) as shell:
        seen, code = run(shell, 'echo "<$(whoami)|$PWD|$0|$TERM|$SVC_MINE|$(stty size)|$HOME>";'
                         ' id -nG; touch made; sudo -n whoami; exit 4')
    assert "<user|/home/user/project|-bash|xterm-256color|a b|30 100|/home/user>" in seen
    assert "user adm" in seen and "\nroot" in seen and code == 4
    assert agent.exec(shell="stat -c %U /home/user/project/made").stdout == b"user\n"


def leave_top(shell):
    """top throws away what is typed while it draws; the line's end gives another prompt."""
    for _ in range(10):
        shell.send(b"q\n")
        with suppress(AssertionError):
            read_until(shell, PROMPT, 2)
            return
    raise AssertionError("top does not end")


def test_resize_ctrl_c_and_a_full_screen_program(agent: AgentClient) -> None:
    with agent.open_shell(80, 24) as shell:
        child = pid_of(shell, "bash -c 'echo pid=$$.; exec sleep 600'")
        shell.send(b"\x03")
        shell.resize(132, 50)
        shell.send(b"echo code=$?.; stty size\n")
        seen = read_until(shell, "50 132")
        assert "code=130." in seen and not lives(agent, child)
        shell.send(b"top\n")
        read_until(shell, r"load average[\s\S]*PID USER")
        leave_top(shell)
        shell.send("echo grüße, 世界 🙂\n".encode())
        # A ctrl-D ahead of the prompt is lost: the terminal takes it before bash reads by the key.
        read_until(shell, r"[\r\n]grüße, 世界 🙂[\s\S]*" + PROMPT)
        shell.send(b"\x04")
        list(shell.output())
        assert shell.exit_code == 0


def test_twenty_megabytes_arrive_whole_at_a_reader_who_rests(agent: AgentClient) -> None:
    with agent.open_shell(80, 24) as shell:
        shell.send(b"stty -opost -echo; echo begin; head -c 20000000 /dev/zero | tr '\\0' x;"
                   b" exit 9\n")
        read_until(shell, "begin\n")
        time.sleep(1)
        seen = b"".join(shell.output())
    assert seen.rstrip(b"logut\r\n") == b"x" * 20_000_000 and shell.exit_code == 9


def test_a_child_in_the_background_neither_holds_the_end_nor_ends(agent: AgentClient) -> None:
    with agent.open_shell(80, 24) as shell:
        child = pid_of(shell, "nohup sleep 600 & echo pid=$!.")
        agent.exec(shell=f"until grep -q sleep /proc/{child}/comm; do sleep 0.1; done")
        assert run(shell, "exit 0")[1] == 0
    assert lives(agent, child)


def test_hanging_up_ends_what_runs(agent: AgentClient) -> None:
    with agent.open_shell(80, 24) as shell:
        leader = pid_of(shell, "echo pid=$$.")
        job = pid_of(shell, "sleep 600 & echo pid=$!.")
        stubborn = pid_of(shell, "bash -c 'trap \"\" HUP; echo pid=$$.; while :; do sleep 1; done'")
    for pid in (leader, job, stubborn):
        assert eventually(lambda: not lives(agent, pid)), pid


def test_a_shell_does_not_outlive_a_sleep_and_another_opens_at_once(guest, agent) -> None:
    lab, spec = guest
    with agent.open_shell(80, 24) as shell:
        leader = pid_of(shell, "echo pid=$$.")
        lab.driver.hibernate(spec.sandbox_id)
        lab.driver.wake(spec)
        with agent.open_shell(80, 24, patient=True) as other:
            assert run(other, "exit 6")[1] == 6
        assert eventually(lambda: not lives(agent, leader)), "nobody hung up the old shell"
