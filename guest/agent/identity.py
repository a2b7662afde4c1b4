"""Gives a restored or cloned guest an identity of its own: clock, randomness, machine-id, host
keys, name, token, env.

1. Everything in the request is checked, and on `renew` the files of the identity are opened, before
   anything is changed.
2. A new identity is kept in /run, where it lives exactly as long as the guest's RAM: an agent that
   systemd restarts finds it again, with what is left to be renewed, while a guest that boots from
   disk is a stranger until it is adopted. One that wakes is who it was, and nothing is written.
3. Only then do token and environment switch. If a step so far fails the old token stays valid and
   the caller may repeat.
4. Once the answer has left, and before any other request is read: on `renew` machine-id, SSH host
   keys, if there is SSH, and host name are replaced; the clock is set and the kernel's random
   number generator is reseeded, while the host writes down that the guest has answered. A guest in
   which this fails serves nobody until it is adopted again, which makes up for what was left.
"""
import binascii
import json
import os
import string
import time
from typing import Any, NamedTuple

from .identity_files import (
    close_all,
    has_host_keys,
    make_host_key,
    name_in_hosts,
    open_identity_files,
    overwrite,
    remove,
    write_identity_files,
)
from .kernel import Kernel
from .protocol import BAD_REQUEST, FAILED, Refused, to_json
from .requests import environment, flag, integer, text

ENTROPY_BYTES = 64
STATE_DIR = "/run/svc"
STATE_FILE = f"{STATE_DIR}/identity.json"
AGENT_SERVER_FILES = ("/run/svc-agent/bootstrap.json", "/run/svc-agent/started")
_HEX_DIGITS = "0123456789abcdef"
_NAME_CHARACTERS = string.ascii_lowercase + string.digits
_MAX_HOSTNAME = 63
_LATEST_NS = 1 << 62


class Identity(NamedTuple):
    """Who this guest is at the moment: the token it demands and what it adds to the environment of
    commands."""

    token: bytes
    sandbox_id: str | None
    env: dict[str, str]


class Renewal(NamedTuple):
    """What the guest is known by from now on."""

    machine_id: str
    hostname: str
    host_key: tuple[str, str] | None


class Adoption(NamedTuple):
    """What an `adopt` asks for, checked."""

    identity: Identity
    received_ns: int
    clock_ns: int
    entropy: bytes
    renewal: Renewal | None
    files: dict[str, int]


class Unfinished(NamedTuple):
    """What of an adoption could not be done once it was answered, and why."""

    refusal: Refused
    renewal: Renewal | None


def recall(root: str, initial_token: bytes) -> tuple[Identity, Adoption | None]:
    """The identity of this RAM's lifetime, or the one every fresh boot begins with; and the
    adoption that an agent before this one has answered and not finished."""
    os.makedirs(root + STATE_DIR, 0o700, exist_ok=True)
    try:
        with open(root + STATE_FILE, encoding="utf-8") as file:
            text = file.read()
    except FileNotFoundError:
        text = ""
    if not text:
        return Identity(initial_token, None, {}), None
    # Who was killed while it wrote has left the end of what was there.
    kept, _ = json.JSONDecoder().raw_decode(text)
    identity = Identity(kept["token"].encode(), kept["sandboxId"], kept["env"])
    return identity, _left(kept["left"], identity) if "left" in kept else None


def adopt(request: dict[str, Any], root: str, present: Identity,
          unfinished: Unfinished | None) -> Adoption:
    """Carry out of an `adopt` what is to precede its answer; the rest is for `finish`. Returns it
    with the identity to use from now on, or raises Refused with the `present` one still valid."""
    adoption = _checked(request)
    if adoption.renewal is None and unfinished:
        adoption = adoption._replace(renewal=unfinished.renewal)
    try:
        if adoption.renewal is not None:
            open_identity_files(root, adoption.files)
        if adoption.renewal is not None or adoption.identity != present:
            _keep(adoption, root)
    except OSError as error:
        close_all(adoption.files)
        raise _could_not(error) from error
    return adoption


def finish(adoption: Adoption, kernel: Kernel, root: str) -> Unfinished | None:
    """Do the rest, after which the guest may be used; returns what could not be done."""
    try:
        if adoption.renewal is not None:
            if not adoption.files:  # an agent before this one had them open
                open_identity_files(root, adoption.files)
            _renew(adoption.renewal, adoption.files, kernel, root)
        kernel.set_clock(adoption.clock_ns + time.monotonic_ns() - adoption.received_ns)
        kernel.reseed(adoption.entropy)
        if adoption.renewal is not None:
            _keep(adoption._replace(renewal=None), root)
    except Exception as error:  # whatever it was, this guest is not what it is to be
        return Unfinished(_could_not(error), adoption.renewal)
    finally:
        close_all(adoption.files)
    return None


def _could_not(error: Exception) -> Refused:
    return Refused(FAILED, f"the guest could not take its identity: {error}")


def _checked(request: dict[str, Any]) -> Adoption:
    sandbox_id = text(request, "sandboxId")
    token = text(request, "newToken")
    try:
        entropy = binascii.a2b_base64(text(request, "entropy"))
    except binascii.Error as error:
        raise Refused(BAD_REQUEST, "entropy is not base64") from error
    if len(entropy) != ENTROPY_BYTES or len(token) < 16:
        raise Refused(BAD_REQUEST,
                      f"entropy must be {ENTROPY_BYTES} bytes and newToken at least 16 characters")
    return Adoption(
        identity=Identity(token.encode(), sandbox_id, environment(request)),
        received_ns=time.monotonic_ns(), clock_ns=integer(request, "clockNs", 1, _LATEST_NS),
        entropy=entropy,
        renewal=_renewal(request, sandbox_id, entropy) if flag(request, "renew") else None,
        files={},
    )


def _renewal(request: dict[str, Any], sandbox_id: str, entropy: bytes) -> Renewal:
    machine_id = text(request, "machineId", "") or binascii.hexlify(entropy[:16]).decode()
    hostname = text(request, "hostname", "") or sandbox_id.lower()
    if not _is_machine_id(machine_id) or not _is_hostname(hostname):
        raise Refused(BAD_REQUEST, "machineId or hostname is malformed")
    private, public = text(request, "hostKeyPrivate", ""), text(request, "hostKeyPublic", "")
    if bool(private) != bool(public):
        raise Refused(BAD_REQUEST, "hostKeyPrivate and hostKeyPublic belong together")
    return Renewal(machine_id, hostname, (private, public) if private else None)


# Without regular expressions, whose engine the guest would translate for these two alone.
def _is_machine_id(given: str) -> bool:
    return len(given) == 32 and not given.strip(_HEX_DIGITS)


def _is_hostname(given: str) -> bool:
    inner = given.replace("-", "0")
    return (len(given) <= _MAX_HOSTNAME and given[:1] != "-" and given[-1:] != "-"
            and bool(inner) and not inner.strip(_NAME_CHARACTERS))


def _renew(wanted: Renewal, files: dict[str, int], kernel: Kernel, root: str) -> None:
    pair = None
    if has_host_keys(files):
        pair = wanted.host_key or make_host_key(root + STATE_DIR, wanted.hostname)
    write_identity_files(root, files, wanted.machine_id, wanted.hostname, pair)
    name_in_hosts(root, wanted.hostname)
    kernel.set_hostname(wanted.hostname)
    # A clone must not report to the session of the sandbox it was cloned from; its own agent server
    # is yet to start.
    remove(root, AGENT_SERVER_FILES)


def _keep(adoption: Adoption, root: str) -> None:
    """Write who this guest is, and while something is left to be renewed, what the adoption asks
    for."""
    identity, renewal = adoption.identity, adoption.renewal
    state: dict[str, Any] = {
        "token": identity.token.decode(), "sandboxId": identity.sandbox_id, "env": identity.env
    }
    if renewal is not None:
        state["left"] = {
            "receivedNs": adoption.received_ns, "clockNs": adoption.clock_ns,
            "entropy": binascii.hexlify(adoption.entropy).decode(), "renewal": renewal,
        }
    overwrite(root + STATE_FILE, to_json(state), 0o600)


def _left(kept: dict[str, Any], identity: Identity) -> Adoption:
    machine_id, hostname, pair = kept["renewal"]
    return Adoption(identity, kept["receivedNs"], kept["clockNs"],
                    binascii.unhexlify(kept["entropy"]),
                    Renewal(machine_id, hostname, tuple(pair) if pair else None), {})
