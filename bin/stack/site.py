"""One stack on one host: its directory, its settings and its secrets, made once and remembered in
`stack.env`.

`Site.development()` is what `make up` runs, under var/. Tests and measurements make theirs with
`Site.private()`. Both hand each process of the same Procfile what config/processes.py says, so that
what is tested is what runs.
"""
import contextlib
import os
import secrets
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

from bin.stack import free_ports, host_shares
from bin.stack.inherited_environment import inherited_by_all, inherited_by_root
from config.env_file import read_env
from config.processes import Process
from config.settings import Settings

ROOT = Path(__file__).resolve().parent.parent.parent
# Where the stack of `make up` has its files.
DEVELOPMENT = ROOT / "var"
# Ports of the development stack, where free: setting's purpose -> port.
PREFERRED = {
    "postgres": 15432, "redis": 16379, "api": 18080, "identity": 18081, "shell": 18082,
    "gateway": 18083, "guest-gateway": 18084, "edge": 8443, "s3": 19000, "flower": 15555
}
# Where tests arm a fault point (nodeworker/faults.py); no setting.
FAULT_FILE = "SVC_FAULT_FILE"
# Facts of the host or settings of the operator that hold for test stacks too.
HOST_SETTINGS = ("SVC_GUEST_DISTRO", "SVC_ACCELERATOR", "SVC_MACHINE", "SVC_IMAGE_DIR",
                 "SVC_GUEST_DNS")
# Facts of a stack, which a shell that sourced the dev.env or stack.env of another must not change.
FACTS = {"SVC_API_URL", "SVC_AUTH_URL", "SVC_SHELL_URL", "SVC_DATA_DIR", "SVC_CA_FILE",
         "SVC_EDGE_PORT", "SVC_PREVIEW_DOMAIN", "SVC_APPS_DOMAIN"}
# Settings that name a place in a stack's directory, unless the operator has chosen another.
_PLACES = {"SVC_NODE_DIR", "SVC_IMAGE_DIR", "SVC_SIGNING_KEYS_DIR", "SVC_CA_FILE"}


@dataclass(frozen=True)
class Site:
    """A stack's directory and the full set of SVC_* values its processes run with."""

    data_dir: Path
    values: dict[str, str]

    @classmethod
    def development(cls) -> "Site":
        """The stack under var/; lines of `.env` and SVC_* of the caller's environment win over what
        was generated."""
        data_dir = DEVELOPMENT
        remembered = _remembered(data_dir)
        share = host_shares.claim_share(data_dir, known_prefix=remembered.get("SVC_NET_PREFIX", ""))
        values = {**_generated(data_dir, PREFERRED), **remembered, **_share_values(share)}
        values["SVC_NODE_ID"] = remembered.get("SVC_NODE_ID", "node-1")
        write_env(data_dir / "stack.env", values | _derived(values))
        return cls.existing(data_dir)

    @classmethod
    def private(cls, data_dir: Path, settings: Mapping[str, str]) -> "Site":
        """A stack of its own in `data_dir`, on free ports, sharing only the images; `settings` are
        SVC_* values."""
        data_dir.mkdir(mode=0o755, parents=True, exist_ok=True)
        share = host_shares.claim_share(data_dir, private=True)
        values = {
            **_generated(data_dir, {name: share.server_port(place)
                                    for place, name in enumerate(PREFERRED)}),
            **_share_values(share), "SVC_NODE_ID": f"test-{share}",
            FAULT_FILE: str(data_dir / "fault")
        }
        for source in (read_env(ROOT / ".env"), os.environ):
            values.update({name: source[name] for name in HOST_SETTINGS if name in source})
        values.update(settings)
        if values.get("SVC_DRIVER") != "simulated":
            # Their image is fetched and built for those only that are about them.
            values.setdefault("SVC_PRESETS", "")
        values |= _derived(values)
        write_env(data_dir / "stack.env", values)
        return cls(data_dir, values)

    @classmethod
    def existing(cls, data_dir: Path) -> "Site":
        """The stack whose directory is there already; for the development stack with the operator's
        settings."""
        values = _remembered(data_dir)
        if data_dir == DEVELOPMENT:
            chosen = _operators_settings()
            values |= chosen
            if "SVC_EDGE_PORT" in chosen:
                values |= {**_derived(values), **chosen}
        return cls(data_dir, {**values, "SVC_DATA_DIR": str(data_dir)})

    @property
    def environ(self) -> dict[str, str]:
        """The whole environment of a command that root runs for this stack."""
        return {
            **inherited_by_root(), **_paths(),
            "SVC_CTL_CONCURRENCY": str(Settings.ctl_concurrency),
            "SVC_OPS_CONCURRENCY": str(Settings.ops_concurrency),
            "SVC_ARCHIVE_CONCURRENCY": str(Settings.archive_concurrency),
            "SVC_DEPLOY_CONCURRENCY": str(Settings.deploy_concurrency), **self.values,
        }

    @property
    def supervisor_environ(self) -> dict[str, str]:
        """The environment of the supervisor: no setting but the one that tells whose it is. Of it
        and its forks it is to be read as long as they live, which setproctitle is told last."""
        return {**inherited_by_all(), **_paths(), "SVC_DATA_DIR": str(self.data_dir),
                "SPT_NOENV": "1"}

    def environ_of(self, process: Process) -> dict[str, str]:
        """The environment of a process: its own settings and no others."""
        told = {name: value for name, value in self.environ.items() if name in process.variables}
        if "SVC_NPM_REGISTRY" in process.variables and "SVC_NPM_REGISTRY" not in told:
            told["SVC_NPM_REGISTRY"] = _client_registry()
        if not process.is_root:
            return {**inherited_by_all(), **_paths(), "HOME": "/nonexistent", **told}
        if FAULT_FILE in self.values:
            told[FAULT_FILE] = self.values[FAULT_FILE]
        return {**inherited_by_root(), **_paths(), **told}

    def directory_of(self, process: Process) -> Path | None:
        """The one directory that a process writes, if it writes any."""
        if not process.directory:
            return None
        chosen = self.values.get("SVC_SIGNING_KEYS_DIR") if process.directory == "keys" else None
        return Path(chosen) if chosen else self.data_dir / process.directory

    def port(self, name: str) -> int:
        """The port out of a URL setting, such as `SVC_API_URL`."""
        return urlsplit(self.values[name]).port or 0


@lru_cache(maxsize=1)
def _client_registry() -> str:
    """The registry of the operator's own npm client; empty without one."""
    shown = ""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        shown = subprocess.run(["npm", "config", "get", "registry"], text=True, check=True,
                               capture_output=True, timeout=30).stdout.strip()
    return shown if shown.startswith(("http://", "https://")) else ""


def _paths() -> dict[str, str]:
    known = os.environ.get("NO_PROXY") or os.environ.get("no_proxy") or ""
    direct = ",".join(filter(None, (known, "127.0.0.1,localhost")))
    path = f"{ROOT}/.venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return {"PATH": path, "NO_PROXY": direct, "no_proxy": direct, "PYTHONUNBUFFERED": "1"}


def _operators_settings() -> dict[str, str]:
    """Lines of `.env`, and settings in the caller's environment, which win over them."""
    settings = {f"SVC_{field.name.upper()}" for field in fields(Settings)} - FACTS
    return {
        **read_env(ROOT / ".env"),
        **{name: os.environ[name] for name in settings if name in os.environ},
    }


def _remembered(data_dir: Path) -> dict[str, str]:
    """What `stack.env` says. Paths in the directory that the stack had when this was written are
    those of today: its checkout may have been moved."""
    values = read_env(data_dir / "stack.env")
    before = values.get("SVC_DATA_DIR", str(data_dir))
    for name in _PLACES & values.keys():
        if Path(values[name]).is_relative_to(before):
            values[name] = str(data_dir / Path(values[name]).relative_to(before))
    return {**values, "SVC_DATA_DIR": str(data_dir)}


def _share_values(share: host_shares.Share) -> dict[str, str]:
    ranges = {"SVC_HOST_PORTS": share.host_ports, "SVC_AGENT_PORTS": share.agent_ports}
    return {"SVC_NET_PREFIX": share.net_prefix, "SVC_SLOT_NETWORK": share.slot_network,
            **{name: f"{low},{high}" for name, (low, high) in ranges.items()},
            "SVC_VM_UID_BASE": str(share.vm_uid_base)}


def _generated(data_dir: Path, preferred: dict[str, int]) -> dict[str, str]:
    """Addresses on free ports (the preferred ones where possible) and fresh secrets."""
    port = free_ports.choose_ports(preferred)
    database, broker = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
    return {
        "SVC_DATA_DIR": str(data_dir),
        "SVC_NODE_DIR": str(data_dir / "node"),
        "SVC_IMAGE_DIR": str(ROOT / "var" / "images"),
        "SVC_SIGNING_KEYS_DIR": str(data_dir / "keys"),
        "SVC_DATABASE_URL": f"postgresql://svc:{database}@127.0.0.1:{port['postgres']}/svc",
        "SVC_REDIS_URL": f"redis://:{broker}@127.0.0.1:{port['redis']}/0",
        "SVC_API_URL": f"http://127.0.0.1:{port['api']}",
        "SVC_AUTH_URL": f"http://127.0.0.1:{port['identity']}",
        "SVC_EDGE_PORT": str(port["edge"]),
        "SVC_EDGE_SECRET": secrets.token_urlsafe(32),
        "SVC_GATEWAY_PORT": str(port["gateway"]),
        "SVC_GUEST_SECRET": secrets.token_urlsafe(32),
        "SVC_VARIABLES_SECRET": secrets.token_urlsafe(32),
        "SVC_GUEST_GATEWAY_PORT": str(port["guest-gateway"]),
        "SVC_SHELL_PORT": str(port["shell"]),
        "SVC_PREVIEW_DOMAIN": Settings.preview_domain,
        "SVC_APPS_DOMAIN": Settings.apps_domain,
        "SVC_CA_FILE": str(data_dir / "ca.pem"),
        "SVC_S3_URL": f"http://127.0.0.1:{port['s3']}",
        "SVC_S3_ACCESS_KEY": secrets.token_hex(10),
        "SVC_S3_SECRET_KEY": secrets.token_hex(20),
        "SVC_SESSION_SECRET": secrets.token_urlsafe(32),
        "SVC_WEBHOOK_SECRETS": f"v1:{secrets.token_urlsafe(32)}",
        "SVC_FLOWER_PORT": str(port["flower"]),
        "SVC_FLOWER_BASIC_AUTH": f"admin:{secrets.token_urlsafe(18)}",
    }


def _derived(values: Mapping[str, str]) -> dict[str, str]:
    """Addresses that follow from the edge's port."""
    return {"SVC_SHELL_URL": f"wss://shell.localhost:{values['SVC_EDGE_PORT']}"}


def write_env(path: Path, values: dict[str, str]) -> None:
    """Write KEY=VALUE lines, readable by the owner only, whole or not at all."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    draft = path.with_suffix(".draft")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as stream:
        stream.writelines(f"{name}={value}\n" for name, value in values.items())
    draft.replace(path)
