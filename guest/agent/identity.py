"""Gives a restored or cloned guest an identity of its own: clock, randomness, machine-id, host keys, name, token, env.

1. Everything in the request is checked before anything is changed.
2. The clock is set and the kernel's random number generator is reseeded; each must succeed.
3. On `renew` the machine-id, the SSH host keys and the host name are replaced.
4. The new identity is kept in /run, where it lives exactly as long as the guest's RAM: an agent that systemd restarts
   finds it again, while a guest that boots from disk is a stranger until it is adopted.
5. Only then do token and environment switch. If any step fails the old token stays valid and the caller may repeat.
"""
import binascii
import glob
import json
import os
import re
import signal
import subprocess
from typing import Any, NamedTuple

from .kernel import Kernel
from .protocol import BAD_REQUEST, FAILED, Refused
from .requests import environment, flag, integer, text

ENTROPY_BYTES = 64
STATE_FILE = "/run/svc/identity.json"
HOST_KEY = "/etc/ssh/ssh_host_ed25519_key"
_MACHINE_ID = re.compile(r"[0-9a-f]{32}")
_HOSTNAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_LATEST_NS = 1 << 62


class Identity(NamedTuple):
    """Who this guest is at the moment: the token it demands and what it adds to the environment of commands."""

    token: bytes
    sandbox_id: str | None
    env: dict[str, str]


class _Adoption(NamedTuple):
    identity: Identity
    clock_ns: int
    entropy: bytes
    renew: bool
    machine_id: str
    hostname: str
    host_key: tuple[str, str] | None


def recall(root: str, initial_token: bytes) -> Identity:
    """The identity of this RAM's lifetime, or the one every fresh boot begins with."""
    try:
        with open(root + STATE_FILE, encoding="utf-8") as state:
            kept = json.load(state)
        return Identity(kept["token"].encode(), kept["sandboxId"], kept["env"])
    except FileNotFoundError:
        return Identity(initial_token, None, {})


def adopt(request: dict[str, Any], kernel: Kernel, root: str) -> Identity:
    """Carry out an `adopt`; returns the identity to use from now on, or raises Refused with the old one still valid."""
    adoption = _checked(request)
    try:
        kernel.set_clock(adoption.clock_ns)
        kernel.reseed(adoption.entropy)
        if adoption.renew:
            _renew(adoption, kernel, root)
        _keep(adoption.identity, root)
    except (OSError, subprocess.SubprocessError) as error:
        raise Refused(FAILED, f"the guest could not take its identity: {error}") from error
    return adoption.identity


def _checked(request: dict[str, Any]) -> _Adoption:
    sandbox_id = text(request, "sandboxId")
    token = text(request, "newToken")
    try:
        entropy = binascii.a2b_base64(text(request, "entropy"))
    except binascii.Error as error:
        raise Refused(BAD_REQUEST, "entropy is not base64") from error
    if len(entropy) != ENTROPY_BYTES or len(token) < 16:
        raise Refused(BAD_REQUEST, f"entropy must be {ENTROPY_BYTES} bytes and newToken at least 16 characters")
    machine_id = text(request, "machineId", "") or binascii.hexlify(entropy[:16]).decode()
    hostname = text(request, "hostname", "") or sandbox_id.lower()
    if not _MACHINE_ID.fullmatch(machine_id) or not _HOSTNAME.fullmatch(hostname):
        raise Refused(BAD_REQUEST, "machineId or hostname is malformed")
    private, public = text(request, "hostKeyPrivate", ""), text(request, "hostKeyPublic", "")
    if bool(private) != bool(public):
        raise Refused(BAD_REQUEST, "hostKeyPrivate and hostKeyPublic belong together")
    return _Adoption(
        identity=Identity(token.encode(), sandbox_id, environment(request)),
        clock_ns=integer(request, "clockNs", 1, _LATEST_NS), entropy=entropy, renew=flag(request, "renew"),
        machine_id=machine_id, hostname=hostname, host_key=(private, public) if private else None,
    )


def _renew(adoption: _Adoption, kernel: Kernel, root: str) -> None:
    replace_file(root + "/etc/machine-id", adoption.machine_id + "\n", 0o444)
    replace_file(root + "/etc/hostname", adoption.hostname + "\n", 0o644)
    replace_file(root + "/etc/hosts", f"127.0.0.1 localhost\n::1 localhost\n127.0.1.1 {adoption.hostname}\n", 0o644)
    kernel.set_hostname(adoption.hostname)
    for old in glob.glob(root + "/etc/ssh/ssh_host_*"):
        os.unlink(old)
    if adoption.host_key:
        private, public = adoption.host_key
        replace_file(root + HOST_KEY, private.rstrip("\n") + "\n", 0o600)
        replace_file(root + HOST_KEY + ".pub", public.rstrip("\n") + "\n", 0o644)
    else:
        os.makedirs(os.path.dirname(root + HOST_KEY), exist_ok=True)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", adoption.hostname, "-f", root + HOST_KEY],
                       stdin=subprocess.DEVNULL, check=True, timeout=20)
    _reload_sshd(root)


def _reload_sshd(root: str) -> None:
    """A running sshd keeps the old keys in memory until it is told."""
    try:
        with open(root + "/run/sshd.pid", encoding="ascii") as pid_file:
            os.kill(int(pid_file.read()), signal.SIGHUP)
    except (FileNotFoundError, ProcessLookupError, ValueError):
        pass  # it is not running


def _keep(identity: Identity, root: str) -> None:
    state = {"token": identity.token.decode(), "sandboxId": identity.sandbox_id, "env": identity.env}
    replace_file(root + STATE_FILE, json.dumps(state), 0o600)


def replace_file(path: str, content: str, mode: int) -> None:
    """Replace a small system file so that a reader sees either the old or the new one."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    temporary = f"{path}.svc-new"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with open(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(descriptor, mode)
        file.write(content)
    os.rename(temporary, path)
