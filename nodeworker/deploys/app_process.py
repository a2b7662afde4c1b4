"""Runs an app in the guest that serves it, as a unit of its systemd: a machine that boots from its
disk starts it again.

What it says goes to a log of bounded length. It is root as its build was: the machine is all its
own. Every call is short, and may be repeated.
"""
import shlex
from collections.abc import Mapping

from guest.client.agent_client import AgentClient
from guest.client.errors import AgentError, AgentRefused, AgentTimeout
from nodeworker.deploys import replication
from nodeworker.deploys.build_scripts import WORK
from services.deploys.apps.process_facts import LOG, tail_script
from services.deploys.masked_secrets import Secrets

UNIT = "svc-app.service"
LOG_BYTES_MOST = 4 * 1024 * 1024
FOLDER = "/opt/svc-app"
_SAID_BYTES = 2000
_UNIT_TEXT = f"""[Unit]
Description=The app
StartLimitIntervalSec=0

[Service]
ExecStart=/bin/bash {FOLDER}/run
Restart=always
RestartSec=1s
TimeoutStopSec=5s
OOMPolicy=continue
TasksMax=infinity
LimitNOFILE=65536

[Install]
WantedBy=multi-user.target
"""
# Copies its input to the log; of a full one only the last part is kept. It outlives the signal that
# ends the app, to take down what that says last.
LOGGER_TEXT = f"""trap '' TERM
log={LOG}
while :; do
  has=$(stat -c %s "$log" 2>/dev/null || echo 0)
  if [ "$has" -ge {LOG_BYTES_MOST} ]; then mv -f "$log" "$log.1"; has=0; fi
  stdbuf -o0 head -c $(({LOG_BYTES_MOST} - has)) >>"$log"
  [ "$(stat -c %s "$log")" -ge {LOG_BYTES_MOST} ] || exit 0
done
"""
_RUN_TEXT = """cd {directory} || exit 1
exec > >(exec /bin/sh {folder}/log) 2>&1
exec env {variables} /bin/bash -c {line}
"""
# What the build has left running ends with it.
_INSTALL = f"""
[ -e {WORK}/session ] && pkill -KILL -s "$(cat {WORK}/session)"
rm -rf {WORK}
mkdir -p {FOLDER}/bin && ln -sf "$(command -v bun)" {FOLDER}/bin/node
[ -e /etc/systemd/system/multi-user.target.wants/{UNIT} ] || systemctl enable --quiet {UNIT}
"""
_GROUP, _TIMER = f"/sys/fs/cgroup/system.slice/{UNIT}", "/run/svc-app-thaw"
_END_TIMER = f'kill "$(cat {_TIMER} 2>/dev/null)" 2>/dev/null\n'
_THAW = f"""
[ ! -e {_GROUP} ] || echo 0 >{_GROUP}/cgroup.freeze
systemctl start --no-block {UNIT}
"""
# Requests are held meanwhile, and an emulated guest takes its time for each process: a shell alone.
_FREEZE = _END_TIMER + f"""
( sleep {{for_s}}; {_THAW} ) >/dev/null 2>&1 &
echo $! >{_TIMER}
[ -e {_GROUP}/cgroup.freeze ] || exec systemctl stop {UNIT}
echo 1 >{_GROUP}/cgroup.freeze
is_frozen() {{{{
  while read -r name value; do [ "$name $value" != "frozen 1" ] || return 0; done
  return 1
}}}}
until is_frozen <{_GROUP}/cgroup.events; do sleep 0.02; done
"""
_PATH = f"{FOLDER}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def install(agent: AgentClient, directory: str, line: str, env: Mapping[str, str]) -> None:
    """Write how the app is started: by a line of the shell in the directory of the project. It is
    not started yet. Raises AgentError."""
    agent.write_file(f"{FOLDER}/run", run_text(directory, line, env).encode(), 0o600,
                     timeout_s=10)
    agent.write_file(f"{FOLDER}/log", LOGGER_TEXT.encode(), 0o600, timeout_s=10)
    agent.write_file(f"/etc/systemd/system/{UNIT}", _UNIT_TEXT.encode(), timeout_s=10)
    _do(agent, _INSTALL, 40)


def run_text(directory: str, line: str, env: Mapping[str, str]) -> str:
    """The script that becomes the app. Pure."""
    named = {"PATH": _PATH, "HOME": "/root", "NODE_ENV": "production", **env}
    variables = " ".join(shlex.quote(f"{name}={value}") for name, value in named.items())
    return _RUN_TEXT.format(directory=shlex.quote(directory), folder=FOLDER, variables=variables,
                            line=shlex.quote(line))


def start(agent: AgentClient) -> None:
    """Start the app unless it runs; raises AgentError."""
    _do(agent, f"systemctl start --no-block {UNIT}", 10)


def stop(agent: AgentClient) -> None:
    """End the app and all that it has started; raises AgentError."""
    _do(agent, f"systemctl stop {UNIT}", 30)


def freeze(agent: AgentClient, for_s: float) -> None:
    """Let nothing of the app run, so that nothing writes, for `for_s` seconds unless it is thawed
    before. One that is just being started again is stopped. Raises AgentError."""
    _do(agent, _FREEZE.format(for_s=round(for_s)), 15)


def thaw(agent: AgentClient) -> None:
    """Let the app go on; raises AgentError."""
    _do(agent, _END_TIMER + _THAW, 15)


def keep_frozen(agent: AgentClient) -> None:
    """Let what is frozen stay so until its machine ends; raises AgentError."""
    _do(agent, f"{_END_TIMER}:", 15)


def drop_database(agent: AgentClient, path: str) -> None:
    """Remove the database of the app, which does not run; raises AgentError.

    What replicates it ends first: it makes a new one if it opens what has just been removed, and
    SQLite would prefer the log of that to the database that is put there next.
    """
    name = shlex.quote(path)
    state = shlex.quote(replication.state_directory(path))
    remove = f"rm -rf -- {name} {name}-wal {name}-shm {name}-journal {state}"
    _do(agent, replication.END_NOW + remove, 15)


def last_said(agent: AgentClient, secrets: Secrets) -> str:
    """The end of the app's log, without its secrets; empty if it cannot be read."""
    wanted_bytes = _SAID_BYTES + secrets.more_bytes
    try:
        said = agent.exec(["/bin/sh", "-c", tail_script(wanted_bytes)], timeout_ms=2000, grace_s=1,
                          cap_bytes=wanted_bytes).stdout
    except AgentError:
        return ""
    return secrets.masked_end(said, _SAID_BYTES).strip()


def _do(agent: AgentClient, script: str, limit_s: float) -> None:
    done = agent.exec(["/bin/sh", "-c", script], timeout_ms=int(limit_s * 1000), grace_s=2,
                      cap_bytes=_SAID_BYTES)
    if done.timed_out:
        raise AgentTimeout(f"the guest did not finish within {limit_s:g} s: {script[:60]}")
    if done.exit_code != 0:
        raise AgentRefused("failed", f"exit code {done.exit_code}:"
                           f" {done.stderr.decode('utf-8', 'replace')[:300]}")
