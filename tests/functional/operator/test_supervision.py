"""Private servers and processes: what dies comes back, what a killed session leaves is found and
removed."""
import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest

from bin import restart
from bin.console import Advice
from bin.stack import health, host_shares, leftovers
from bin.stack.running import SERVERS, private_stack, remove_abandoned
from bin.stack.site import ROOT
from bin.stack.supervision import supervise
from nodeworker.hypervisor import locks
from tasks import contracts
from tests.stack.waiting import until

# Makes a stack, says where it is, and waits to be killed.
ORPHANED = """
from bin.stack.running import private_stack
stack = private_stack("test-orphan", processes=())
stack.start_servers()
print(stack.site.data_dir, stack.supervisor._call("getPID"), flush=True)
input()
"""


@pytest.mark.parametrize("name", SERVERS)
def test_a_killed_server_comes_back_by_itself(servers, name):
    before = servers.kill(name)
    until(
        lambda: servers.supervisor.pid(name) not in (0, before)
        and servers.supervisor.state(name) == "RUNNING"
    )


def test_a_process_that_an_earlier_version_did_not_have_is_stopped(servers):
    """As after a `git pull`, before the supervisor that runs has heard of it: `make down` works."""
    assert servers.supervisor.state("of-tomorrow") == "STOPPED"
    servers.stop("of-tomorrow")
    assert "make restart" in servers.supervisor.info("of-tomorrow")["description"]


def test_servers_run_as_users_of_their_own_with_no_secret_in_their_environment(servers):
    for name in ("postgres", "redis"):
        pid = servers.supervisor.pid(name)
        assert os.stat(f"/proc/{pid}").st_uid != 0
        with open(f"/proc/{pid}/environ", "rb") as environ:
            assert b"SVC_" not in environ.read()


def test_postgres_comes_back_past_a_child_that_outlives_its_killed_postmaster(servers):
    """The child holds the shared memory; without ending it each start fails, at ever longer
    intervals (66 s were seen), or for ever."""
    postmaster = servers.supervisor.pid("postgres")
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGSTOP)
    servers.kill("postgres")
    until(lambda: servers.supervisor.pid("postgres") not in (0, postmaster))
    until(lambda: health.database_made(servers.site))
    assert not Path(f"/proc/{children[0]}/cwd").exists()
    assert "pre-existing shared memory block" not in servers.logs("postgres", 30)


def test_what_a_supervisor_restarts_as_it_dies_is_ended_too(tmp_path):
    """Who restarts is none of the stack here, so that there is a second one for sure."""
    restart = "import subprocess; [subprocess.run(['sleep', '600']) for _ in range(2)]"
    mark = ["env", f"SVC_DATA_DIR={tmp_path}"]
    program = restart.replace("['sleep'", f"{mark} + ['sleep'")
    with subprocess.Popen([sys.executable, "-c", program], start_new_session=True) as restarting:
        until(lambda: leftovers.processes_of(tmp_path))
        leftovers.end(lambda: leftovers.processes_of(tmp_path), patience_s=0)
        assert restarting.wait(10) == 0 and not leftovers.processes_of(tmp_path)


@pytest.mark.parametrize("supervisor_too", [False, True])
@pytest.mark.slow
def test_what_a_killed_session_left_is_removed(servers, supervisor_too):
    session = subprocess.Popen([sys.executable, "-c", ORPHANED], cwd=ROOT, text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with session:
        path, supervisor = session.stdout.readline().split()
        data_dir = ROOT / "var" / os.path.basename(path)
        session.send_signal(signal.SIGKILL)
    if supervisor_too:
        os.kill(int(supervisor), signal.SIGKILL)
    left = " ".join(leftovers.processes_of(data_dir).values())
    assert [name for name in ("postgres", "redis-server", "rclone") if name not in left] == [], left
    assert data_dir.name in remove_abandoned()
    assert not leftovers.processes_of(data_dir)
    assert not data_dir.exists()
    assert str(data_dir) not in [claim.read_text() for claim in host_shares.CLAIMS.iterdir()]
    assert servers.supervisor.running()


def pids(stack):
    return {name: stack.supervisor.pid(name) for name in (*SERVERS, *stack.processes)}


@pytest.mark.slow
def test_what_new_code_starts_in_another_way_runs_afterwards(sim_stack, monkeypatch):
    """A server too, be it after `make restart` or after `make start` of something else."""
    configuration, before = supervise.configuration, pids(sim_stack)
    monkeypatch.setattr(supervise, "configuration", lambda *of: re.sub(
        r"(?s)(\[program:(?:postgres|relay)\].*?stopwaitsecs=)25", r"\g<1>24",
        configuration(*of)))
    try:
        restart.restart(sim_stack)
        restarted = pids(sim_stack)
        assert all(restarted.values()) and restarted["postgres"] != before["postgres"]
        assert restarted["redis"] == before["redis"]
    finally:
        monkeypatch.undo()
        restart.start(sim_stack, ["beat"])
    sim_stack.wait_healthy()
    changed = {name for name, pid in pids(sim_stack).items() if pid != restarted[name]}
    assert changed == {"postgres", "relay"}


@pytest.fixture
def halted():
    """A stack without a node worker."""
    stack = private_stack("test-down", {"SVC_DRIVER": "simulated"}, processes=())
    try:
        stack.start_servers()
        yield stack
    finally:
        stack.destroy()


@contextlib.contextmanager
def machine(directory):
    """What there is of a machine whose files are in `directory`: a process of such a name that has
    its lock."""
    directory.mkdir(parents=True)
    lock = locks.try_lock(directory / "vm.lock")
    with subprocess.Popen(["qemu-system-none", "-c", "read it"], executable="/bin/sh",
                          stdin=subprocess.PIPE, pass_fds=[lock]) as process:
        os.close(lock)
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("supervised", [True, False])
def test_a_stack_with_a_sandbox_that_cannot_sleep_goes_down_by_force_only(halted, supervised):
    if not supervised:
        halted.supervisor.shutdown()
    node_dir = halted.settings.node_dir
    with machine(node_dir / "sandboxes" / "one") as awake, machine(node_dir / "warm" / "spare"):
        with pytest.raises(Advice, match="node-ops does not run" if supervised else "`make up`"):
            halted.down()
        assert halted.supervisor.running() is supervised and awake.poll() is None
        halted.down(force=True)
        assert awake.wait(10) and not halted.supervisor.running()


@pytest.mark.slow
def test_an_end_that_was_not_waited_for_is_not_cut_short_by_the_next_start(halted):
    """As after a `make down` that was broken off while Postgres still wrote."""
    postmaster = halted.supervisor.pid("postgres")
    os.kill(postmaster, signal.SIGSTOP)
    goes_on = threading.Timer(6, os.kill, (postmaster, signal.SIGCONT))
    goes_on.start()
    halted.supervisor._call("shutdown")
    halted.start_servers()
    goes_on.join()
    assert "not properly shut down" not in halted.logs("postgres")


def test_machines_of_nobody_do_not_keep_a_stack_up(halted):
    with machine(halted.settings.node_dir / "warm" / "spare") as spare:
        halted.down()
        assert spare.wait(10) and not halted.supervisor.running()


def test_a_node_directory_elsewhere_is_left_to_its_owner(tmp_path):
    """But the machines end, by whatever path the setting names it."""
    disk, mount = tmp_path / "disk", tmp_path / "mount"
    mount.symlink_to(disk)
    stack = private_stack("test-disk", {"SVC_NODE_DIR": str(mount)}, processes=())
    with machine(disk / "sandboxes" / "one") as awake:
        (disk / "directory-id").write_text("of a node")
        stack.destroy()
        assert awake.wait(10) and (disk / "sandboxes" / "one").exists()


@pytest.mark.parametrize("name", ["api", "relay", "node-ctl"])
def test_processes_share_the_memory_of_the_code(sim_stack, name):
    rollup = Path(f"/proc/{sim_stack.supervisor.pid(name)}/smaps_rollup").read_text()
    size = {line.split()[0]: int(line.split()[1]) for line in rollup.splitlines()[1:]}
    assert size["Pss:"] < size["Rss:"] / 2


@pytest.mark.parametrize("path", ["/", "/metrics", "/api/workers", "/workers"])
def test_flower_shows_nothing_without_its_password(sim_stack, flower, path):
    address = f"{flower}{path}"
    assert httpx.get(address, trust_env=False).status_code == 401
    user, password = sim_stack.settings.flower_basic_auth.split(":")
    assert httpx.get(address, auth=(user, password), trust_env=False).status_code == 200


@pytest.mark.slow
def test_flower_shows_what_the_workers_do_while_it_runs(sim_stack, flower, sandbox):
    user = tuple(sim_stack.settings.flower_basic_auth.split(":"))

    def names():
        tasks = httpx.get(f"{flower}/api/tasks", auth=user, trust_env=False).json()
        return {task["name"] for task in tasks.values() if task["state"] == "SUCCESS"}

    until(lambda: {contracts.SAMPLE_ALL, contracts.SAMPLE} <= names())


def test_logs_hold_no_query_string(sim_stack):
    httpx.get(f"{sim_stack.api_url}/v1/sandboxes", params={"access_token": "sesame"},
              trust_env=False)
    until(lambda: "GET /v1/sandboxes 401" in sim_stack.logs("api"))
    assert "sesame" not in sim_stack.logs("api", 10_000)
