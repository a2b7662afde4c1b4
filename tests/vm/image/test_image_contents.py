"""The contract's "Default guest image", item by item, in a real sandbox; and what makes that image
fit to be cloned."""
import shlex
import time
from collections.abc import Callable, Iterator

import pytest

from guest.client.agent_client import AgentClient
from guest.client.errors import AgentError
from tests.host.driver_lab import Lab

AS_USER = "sudo -n -u user -H bash -c"
# All the memory that there is and more, by system calls: an emulated guest is slower with a fault
# for each page (alone 17 s instead of 13).
HOG = ("import mmap\nkept = []\nwhile True: kept.append(mmap.mmap(-1, 16 << 20,"
       " flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE))")


@pytest.fixture(scope="module")
def agent(qemu_lab: Lab) -> Iterator[AgentClient]:
    """One sandbox for all the tests here; they only look, or clean up behind themselves."""
    spec = qemu_lab.create()
    yield qemu_lab.agent(spec)
    qemu_lab.driver.destroy(spec.sandbox_id)


@pytest.fixture
def run(agent: AgentClient) -> Callable[[str], str]:
    """Output of a line of bash that must succeed."""
    def run_line(line: str) -> str:
        result = agent.exec(shell=line)
        assert result.exit_code == 0, result
        return result.stdout.decode().strip()
    return run_line


def test_it_is_ubuntu_22_04(run) -> None:
    assert run('. /etc/os-release; echo "$ID $VERSION_ID"') == "ubuntu 22.04"


@pytest.mark.parametrize(
    "line",
    [
        (
            "cd $(mktemp -d) && git init -q . && git -c user.name=a -c user.email=a@b commit -q"
            " --allow-empty -m x && git log"
        ),
        "curl --version",
        "wget --version",
        "unzip -v",
        "python3 -c 'import ssl, sqlite3, venv, json'",
        "pip --version",
        "ssh -V",
        "bun --version",
    ],
    ids=lambda line: line.split()[0] if not line.startswith("cd") else "git",
)
def test_a_tool_of_the_list_works_for_root_and_for_the_user(run, line: str) -> None:
    run(line)
    run(f"{AS_USER} {shlex.quote(line)}")


def test_bun_runs_a_program(run) -> None:
    assert run("bun -e 'console.log(6 * 7, typeof Bun)'") == "42 object"


def test_there_is_no_node_binary(agent: AgentClient) -> None:
    assert agent.exec(shell="command -v node || command -v nodejs").exit_code != 0
    assert agent.exec(shell="find / -xdev -type f \\( -name node -o -name nodejs \\)").stdout == b""


def test_the_ssh_server_accepts_its_configuration_and_keys(run) -> None:
    run("mkdir -p /run/sshd && /usr/sbin/sshd -t")


def test_the_user_is_1000_has_its_home_and_may_do_everything(run) -> None:
    assert run("id -u user; getent passwd user | cut -d: -f6; stat -c %U /home/user"
               ) == "1000\n/home/user\nuser"
    assert run(f"{AS_USER} 'sudo -n id -u' 2>&1") == "0"


def test_commands_start_in_the_home_of_the_user(run) -> None:
    assert run("pwd") == "/home/user"


def test_the_package_cache_answers_without_an_update(run) -> None:
    assert "Candidate: 1" in run("apt-cache policy jq")
    assert "Inst jq" in run("apt-get install --simulate jq")


def test_the_root_file_system_is_16_gib_writable_and_without_access_times(
    agent: AgentClient, run
) -> None:
    assert agent.disk().total_bytes > 15 * 1024 ** 3
    assert {"rw", "noatime"} <= set(run("findmnt -no OPTIONS /").split(","))


def test_systemd_is_content_and_nothing_of_it_is_broken(run) -> None:
    assert run("systemctl is-system-running") == "running"
    assert run("systemctl list-units --failed --no-legend") == ""


def test_time_is_kept_by_a_precise_clock(run) -> None:
    source = run("cat /sys/devices/system/clocksource/clocksource0/current_clocksource")
    assert source in {"tsc", "kvm-clock"}


def test_only_the_agent_listens(run) -> None:
    assert run("ss -Hltnu | awk '{print $5}'") == "0.0.0.0:1024"


def test_names_are_resolved_by_the_configured_servers(run, qemu_lab: Lab) -> None:
    servers = run("awk '/^nameserver/ {print $2}' /etc/resolv.conf").split()
    assert servers == list(qemu_lab.settings.guest_dns)


def test_its_own_name_resolves(run) -> None:
    assert run("getent hosts $(hostname) | awk '{print $1}'") == "127.0.1.1"


def test_a_server_on_any_ipv6_address_is_reached_over_ipv4(run) -> None:
    assert (
        run(
            'bun -e \'const s = Bun.serve({port: 0, hostname: "::", fetch: () => new'
            ' Response("six")}); console.log(await (await'
            " fetch(`http://127.0.0.1:${s.port}`)).text()); s.stop(true)'"
        )
        == "six"
    )


def test_shared_memory_is_a_tmpfs(run) -> None:
    assert run("findmnt -no FSTYPE /dev/shm") == "tmpfs"


def test_the_secrets_of_the_agent_are_not_readable_for_the_user(agent: AgentClient) -> None:
    for path in ("/opt/svc/initial-token", "/run/svc/identity.json"):
        assert agent.exec(shell=f"{AS_USER} 'cat {path}'").exit_code != 0


def test_little_runs_and_little_memory_is_used(run) -> None:
    assert int(run("free -m | awk '/^Mem:/ {print $3}'")) < 100
    assert int(run("systemctl list-units --type=service --state=running --no-legend | wc -l")) <= 3
    assert run("systemctl list-units --type=timer --state=active --no-legend") == ""


def test_running_out_of_memory_kills_the_command_and_not_the_agent(agent: AgentClient) -> None:
    before = agent.exec(shell="systemctl show -p MainPID svc-agent").stdout
    hog = agent.exec(["python3", "-c", HOG], timeout_ms=120_000)
    assert hog.exit_code in (1, 137) and not hog.timed_out
    assert agent.exec(shell="systemctl show -p MainPID svc-agent").stdout == before


def test_an_agent_that_dies_comes_back_as_itself_and_its_detached_commands_live(
        agent: AgentClient) -> None:
    detached = agent.exec(["sleep", "600"], detached=True)
    before = agent.ping()
    try:
        agent.exec(shell="kill -9 $PPID")
    except AgentError:
        pass  # the reply died with the agent
    end = time.monotonic() + 60
    while True:
        try:
            after = agent.ping()
            break
        except AgentError:
            assert time.monotonic() < end, "the agent did not come back"
            time.sleep(0.1)
    assert after == before
    assert agent.exec(["kill", str(detached.pid)]).exit_code == 0
