"""The exported units: who each process is, what it is told and what it may touch, by systemd's own
judgement where it is installed."""
import configparser
import shutil
import subprocess

import pytest

from bin.stack.supervision.supervise import procfile
from bin.systemd import export
from config.processes import NODE_CAPABILITIES, PROCESSES
from config.settings import Settings

EVERY = {f"SVC_{name.upper()}" for name in Settings.__dataclass_fields__}
CONFINED = [name for name, row in PROCESSES.items() if not row.is_root]
# Of 100; a unit without any hardening has 96.
EXPOSURE = 20


@pytest.fixture(scope="module")
def units(tmp_path_factory):
    target = tmp_path_factory.mktemp("systemd")
    export(target)
    return target


def read(units, name):
    """Settings of the unit's section Service, those of the drop-in last."""
    return sections(units, name)["Service"]


def sections(units, name):
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str
    unit = f"svc-{name}-1.service"
    parser.read([units / unit, units / f"{unit}.d" / "service.conf"])
    return parser


@pytest.mark.parametrize("name", PROCESSES)
def test_a_process_is_started_again_however_often_it_has_ended(units, name):
    unit = sections(units, name)
    assert unit["Unit"]["StartLimitIntervalSec"] == "0" and unit["Service"]["Restart"] == "always"
    assert unit["Unit"]["Wants"] == unit["Unit"]["After"] == "network-online.target"


@pytest.mark.parametrize("name", PROCESSES)
def test_a_process_runs_as_its_account_and_is_told_its_settings_only(units, name):
    unit, row = read(units, name), PROCESSES[name]
    assert unit["User"] == unit["Group"] == row.account
    assert EVERY - set(unit["UnsetEnvironment"].split()) == row.variables
    assert unit["NoNewPrivileges"] == "yes"


@pytest.mark.parametrize("name", PROCESSES)
def test_the_command_is_the_line_of_the_procfile_in_no_login_shell(units, name):
    command = read(units, name)["ExecStart"]
    assert command.startswith("/bin/sh -c ")
    shown = command.removeprefix("/bin/sh -c ").replace("$$", "$").replace("%%", "%")
    printed = subprocess.run(["sh", "-c", f"printf %s {shown}"], text=True, capture_output=True,
                             check=True).stdout
    assert printed == procfile()[name]


@pytest.mark.parametrize("name", CONFINED)
def test_a_process_that_is_not_root_has_hardly_a_capability_and_one_directory(units, name):
    unit, row = read(units, name), PROCESSES[name]
    kept = "CAP_NET_BIND_SERVICE" if name == "edge" else ""
    assert unit["CapabilityBoundingSet"] == unit["AmbientCapabilities"] == kept
    assert unit["ProtectSystem"] == "strict"
    assert unit["PrivateTmp"] == unit["PrivateDevices"] == "yes"
    assert unit.get("StateDirectory", "") == (f"svc/{row.directory}" if row.directory else "")
    assert "ReadWritePaths" not in unit


@pytest.mark.parametrize("name", sorted(set(PROCESSES) - set(CONFINED)))
def test_a_node_worker_keeps_what_it_needs_and_shares_the_hosts_mounts(units, name):
    unit = read(units, name)
    kept = {word.removeprefix("CAP_").lower() for word in unit["CapabilityBoundingSet"].split()}
    assert kept == set(NODE_CAPABILITIES)
    assert not kept & {"sys_module", "sys_rawio", "sys_boot", "sys_time", "mac_admin", "bpf"}
    apart = ("ProtectSystem", "ProtectHome", "PrivateTmp", "PrivateDevices", "BindReadOnlyPaths")
    assert not [key for key in apart if key in unit], "would hide /run/netns from the other lanes"
    assert unit["KillMode"] == "process"


def test_workers_of_a_killed_nginx_end_with_it(units):
    assert read(units, "edge")["KillMode"] == "mixed"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("name", CONFINED)
def test_systemd_finds_little_exposed(units, name):
    judged = subprocess.run([
        "systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE}", "--no-pager",
        units / f"svc-{name}-1.service"
    ], text=True, capture_output=True, check=False)
    assert judged.returncode == 0, judged.stdout[-300:] + judged.stderr


def test_every_account_is_made_by_sysusers(units):
    made = {line.split()[1] for line in (units / "svc-sysusers.conf").read_text().splitlines()}
    assert made == {PROCESSES[name].account for name in CONFINED}
