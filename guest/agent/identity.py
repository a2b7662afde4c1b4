"""Gives a restored or cloned guest an identity of its own: clock, randomness, machine-id, host
keys, name, token, env.

1. Everything in the request is checked before anything is changed.
2. The clock is set and the kernel's random number generator is reseeded; each must succeed.
3. On `renew` the machine-id, the SSH host keys and the host name are replaced.
4. The new identity is kept in /run, where it lives exactly as long as the guest's RAM: an agent
   that systemd restarts finds it again, while a guest that boots from disk is a stranger until it
   is adopted.
5. Only then do token and environment switch. If any step fails the old token stays valid and the
   caller may repeat.
"""
import binascii
import contextlib
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
STATE_DIR = "/run/svc"
STATE_FILE = f"{STATE_DIR}/identity.json"
AGENT_SERVER_FILES = ("/run/svc-agent/bootstrap.json", "/run/svc-agent/started")
HOST_KEY_DIR = "/etc/ssh"
HOST_KEY_NAMES = ("ssh_host_ed25519_key", "ssh_host_ed25519_key.pub")
_MACHINE_ID = re.compile(r"[0-9a-f]{32}")
_HOSTNAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_LATEST_NS = 1 << 62


class Identity(NamedTuple):
    """Who this guest is at the moment: the token it demands and what it adds to the environment of
    commands."""

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
    os.makedirs(root + STATE_DIR, 0o700, exist_ok=True)
    try:
        with open(root + STATE_FILE, encoding="utf-8") as state:
            kept = json.load(state)
        return Identity(kept["token"].encode(), kept["sandboxId"], kept["env"])
    except FileNotFoundError:
        return Identity(initial_token, None, {})


def adopt(request: dict[str, Any], kernel: Kernel, root: str) -> Identity:
    """Carry out an `adopt`; returns the identity to use from now on, or raises Refused with the old
    one still valid."""
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
        raise Refused(BAD_REQUEST,
                      f"entropy must be {ENTROPY_BYTES} bytes and newToken at least 16 characters")
    machine_id = text(request, "machineId", "") or binascii.hexlify(entropy[:16]).decode()
    hostname = text(request, "hostname", "") or sandbox_id.lower()
    if not _MACHINE_ID.fullmatch(machine_id) or not _HOSTNAME.fullmatch(hostname):
        raise Refused(BAD_REQUEST, "machineId or hostname is malformed")
    private, public = text(request, "hostKeyPrivate", ""), text(request, "hostKeyPublic", "")
    if bool(private) != bool(public):
        raise Refused(BAD_REQUEST, "hostKeyPrivate and hostKeyPublic belong together")
    return _Adoption(
        identity=Identity(token.encode(), sandbox_id, environment(request)),
        clock_ns=integer(request, "clockNs", 1, _LATEST_NS), entropy=entropy,
        renew=flag(request, "renew"), machine_id=machine_id, hostname=hostname,
        host_key=(private, public) if private else None,
    )


def identity_files(machine_id: str, hostname: str) -> dict[str, tuple[str, int]]:
    """Content and mode of the files that name a guest, except its host keys."""
    return {
        "/etc/machine-id": (machine_id + "\n", 0o444),
        "/etc/hostname": (hostname + "\n", 0o644),
        "/etc/hosts": (f"127.0.0.1 localhost\n::1 localhost\n127.0.1.1 {hostname}\n", 0o644),
    }


def _renew(adoption: _Adoption, kernel: Kernel, root: str) -> None:
    for path, (content, mode) in identity_files(adoption.machine_id, adoption.hostname).items():
        overwrite(root + path, content, mode)
    kernel.set_hostname(adoption.hostname)
    for name in os.listdir(root + HOST_KEY_DIR):
        if name.startswith("ssh_host_") and name not in HOST_KEY_NAMES:
            os.unlink(f"{root}{HOST_KEY_DIR}/{name}")
    # A clone must not report to the session of the sandbox it was cloned from; its own agent server
    # is yet to start.
    for path in AGENT_SERVER_FILES:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(root + path)
    private_path, public_path = (f"{root}{HOST_KEY_DIR}/{name}" for name in HOST_KEY_NAMES)
    private, public = adoption.host_key or _make_host_key(root, adoption.hostname)
    overwrite(private_path, private.rstrip("\n") + "\n", 0o600)
    overwrite(public_path, public.rstrip("\n") + "\n", 0o644)
    _reload_sshd(root)


def rewrite_identity_files(root: str) -> None:
    """Overwrite the files that `adopt` overwrites with what they hold, to have all that takes in
    the page cache."""
    for path in (*identity_files("", ""), *(f"{HOST_KEY_DIR}/{name}" for name in HOST_KEY_NAMES)):
        with open(root + path, encoding="utf-8") as file:
            content = file.read()
        overwrite(root + path, content, 0o600)


def _make_host_key(root: str, comment: str) -> tuple[str, str]:
    """A new key pair made here, for a caller that did not bring one; takes a good part of a
    second."""
    path = f"{root}{STATE_DIR}/host-key"
    for name in (path, path + ".pub"):
        if os.path.exists(name):
            os.unlink(name)
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", path]
    subprocess.run(command, stdin=subprocess.DEVNULL, check=True, timeout=20)
    with open(path, encoding="ascii") as private, open(path + ".pub", encoding="ascii") as public:
        pair = private.read(), public.read()
    os.unlink(path)
    os.unlink(path + ".pub")
    return pair


def _reload_sshd(root: str) -> None:
    """A running sshd keeps the old keys in memory until it is told."""
    try:
        with open(root + "/run/sshd.pid", encoding="ascii") as pid_file:
            os.kill(int(pid_file.read()), signal.SIGHUP)
    except (FileNotFoundError, ProcessLookupError, ValueError):
        pass  # it is not running


def _keep(identity: Identity, root: str) -> None:
    state = {
        "token": identity.token.decode(), "sandboxId": identity.sandbox_id, "env": identity.env
    }
    overwrite(root + STATE_FILE, json.dumps(state), 0o600)


def overwrite(path: str, content: str, mode: int) -> None:
    """Give a small system file new content, in place.

    A rename would be safe against a crash in the middle, but a guest that crashed is adopted anew
    anyway, and in place is several times faster: it is on the way of every wake.
    """
    encoded = content.encode()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, mode)
    try:
        os.write(descriptor, encoded)
        os.ftruncate(descriptor, len(encoded))
    finally:
        os.close(descriptor)
