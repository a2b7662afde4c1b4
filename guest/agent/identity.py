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
import subprocess
from typing import Any, NamedTuple

from .identity_files import identity_files, make_host_key, overwrite, replace_host_keys
from .kernel import Kernel
from .protocol import BAD_REQUEST, FAILED, Refused
from .requests import environment, flag, integer, text

ENTROPY_BYTES = 64
STATE_DIR = "/run/svc"
STATE_FILE = f"{STATE_DIR}/identity.json"
AGENT_SERVER_FILES = ("/run/svc-agent/bootstrap.json", "/run/svc-agent/started")
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


def _renew(adoption: _Adoption, kernel: Kernel, root: str) -> None:
    for path, (content, mode) in identity_files(adoption.machine_id, adoption.hostname).items():
        overwrite(root + path, content, mode)
    kernel.set_hostname(adoption.hostname)
    # A clone must not report to the session of the sandbox it was cloned from; its own agent server
    # is yet to start.
    for path in AGENT_SERVER_FILES:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(root + path)
    replace_host_keys(
        root, adoption.host_key or make_host_key(root + STATE_DIR, adoption.hostname))


def _keep(identity: Identity, root: str) -> None:
    state = {
        "token": identity.token.decode(), "sandboxId": identity.sandbox_id, "env": identity.env
    }
    overwrite(root + STATE_FILE, json.dumps(state), 0o600)
