"""The host's client of one guest agent; every call has its own connection, a total deadline and
caps of its own."""
import base64
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from guest.agent.protocol import (
    AGENT_PORT,
    DATA,
    DEFAULT_CAP_BYTES,
    DEFAULT_TIMEOUT_MS,
    STDERR,
    STDOUT,
    TOO_LARGE,
)
from guest.client.conversation import Conversation
from guest.client.deadline import Deadline
from guest.client.dialing import dial, dial_patiently
from guest.client.errors import AgentProtocolError, AgentRefused

ENTROPY_BYTES = 64
# On top of a command's own time limit: for the connection, the kill at its end and a slow guest.
EXEC_GRACE_S = 10.0


@dataclass(frozen=True)
class ExecResult:
    """What came of a command; for a detached one only `pid` and `log_path` are of interest."""

    stdout: bytes
    stderr: bytes
    exit_code: int
    timed_out: bool
    stdout_truncated: bool
    stderr_truncated: bool
    pid: int | None
    log_path: str | None


@dataclass(frozen=True)
class Pong:
    """Who answered: `boot_id` changes when the guest reboots, `adopted` is the sandbox id it was
    given, if any."""

    agent_version: str
    boot_id: str
    adopted: str | None


@dataclass(frozen=True)
class DiskUsage:
    """The root file system of the guest."""

    total_bytes: int
    used_bytes: int
    available_bytes: int


@dataclass(frozen=True)
class GuestIdentity:
    """What a guest becomes by being adopted; with `renew`, also on its disk (needed for every
    clone)."""

    token: str
    sandbox_id: str
    renew: bool
    env: dict[str, str]
    hostname: str | None = None
    machine_id: str | None = None
    host_key_private: str | None = None
    host_key_public: str | None = None


class AgentClient:
    """Talks to the agent at `host:port` with `token`; every method raises what
    `guest.client.errors` lists."""

    def __init__(self, host: str, port: int = AGENT_PORT, token: str = "",
                 connect_timeout_s: float = 3.0) -> None:
        self._address = (host, port)
        self._token = token
        self._connect_timeout_s = connect_timeout_s

    def ping(self, timeout_s: float = 5.0) -> Pong:
        """Ask the agent who it is."""
        return _pong(self._call("ping", {}, Deadline(timeout_s)))

    def wait_ready(self, timeout_s: float) -> Pong:
        """Ping a guest that is starting, as soon as it accepts connections; raises AgentTimeout
        after `timeout_s`."""
        return _pong(self._call("ping", {}, Deadline(timeout_s), patient=True))

    def adopt(self, identity: GuestIdentity, timeout_s: float = 30.0, *,
              patient: bool = False) -> None:
        """Give the guest clock, randomness and identity; afterwards it answers to `identity.token`
        only.

        `patient` dials like `wait_ready`, which saves a round trip right after a restore. May be
        repeated; after a lost reply either token may be the valid one.
        """
        request = {
            "newToken": identity.token,
            "sandboxId": identity.sandbox_id,
            "renew": identity.renew,
            "env": identity.env,
            "hostname": identity.hostname,
            "machineId": identity.machine_id,
            "hostKeyPrivate": identity.host_key_private,
            "hostKeyPublic": identity.host_key_public,
            "entropy": base64.b64encode(os.urandom(ENTROPY_BYTES)).decode(),
        }
        given = {name: value for name, value in request.items() if value is not None}
        reply = self._call("adopt", given, Deadline(timeout_s), patient=patient, stamp_clock=True)
        if reply.get("adopted") != identity.sandbox_id:
            raise AgentProtocolError("the guest agent confirmed another identity than it was given")
        self._token = identity.token

    def exec(self, argv: list[str] | None = None, *, shell: str | None = None,
             cwd: str | None = None, env: dict[str, str] | None = None,
             timeout_ms: int = DEFAULT_TIMEOUT_MS, detached: bool = False,
             cap_bytes: int = DEFAULT_CAP_BYTES,
             on_idle: Callable[[], None] | None = None) -> ExecResult:
        """Run a program (`argv`) or a line of bash (`shell`) as root and wait for it, unless it is
        `detached`.

        `on_idle` is called about once a second while the guest is silent; what it raises ends the
        wait.
        """
        request = {
            "argv": argv, "shell": shell, "cwd": cwd, "env": env, "timeoutMs": timeout_ms,
            "detached": detached, "capBytes": cap_bytes
        }
        given = {name: value for name, value in request.items() if value is not None}
        outputs = {STDOUT: _Output(cap_bytes), STDERR: _Output(cap_bytes)}
        with self._open(Deadline(timeout_ms / 1000 + EXEC_GRACE_S),
                        on_idle=on_idle) as conversation:
            conversation.ask(self._request("exec", given))
            for kind, payload in conversation.frames():
                if kind not in outputs:
                    raise AgentProtocolError(
                        f"the guest agent sent a frame of type {kind} in the reply of an exec")
                outputs[kind].add(payload)
            return _exec_result(conversation.outcome, outputs[STDOUT], outputs[STDERR])

    def write_file(self, path: str, content: bytes | Iterable[bytes], mode: int = 0o644, *,
                   size_bytes: int | None = None, timeout_s: float = 60.0,
                   on_idle: Callable[[], None] | None = None) -> int:
        """Replace a file of the guest as a whole, parents included; returns its size. After an
        error the old one stays.

        With `size_bytes`, a stream of any other length is refused and stores nothing. An exception
        from `content` breaks the stream off. `on_idle` is as for `exec`.
        """
        chunks = [content] if isinstance(content, bytes) else content
        if isinstance(content, bytes):
            size_bytes = len(content)
        request = {"path": path, "mode": mode
                   } | ({} if size_bytes is None else {"sizeBytes": size_bytes})
        with self._open(Deadline(timeout_s), on_idle=on_idle) as conversation:
            conversation.ask(self._request("write", request))
            conversation.upload(chunks)
            return _integer(conversation.result(), "sizeBytes")

    def read_file(self, path: str, max_bytes: int, timeout_s: float = 60.0) -> bytes:
        """The content of a file; raises AgentRefused with code `too_large` if it exceeds
        `max_bytes`."""
        return b"".join(self.stream_file(path, max_bytes, timeout_s))

    def stream_file(self, path: str, max_bytes: int, timeout_s: float = 60.0) -> Iterator[bytes]:
        """The content of a file in pieces of at most 1 MiB; the same limits as `read_file`."""
        received = 0
        with self._open(Deadline(timeout_s)) as conversation:
            conversation.ask(self._request("read", {"path": path, "maxBytes": max_bytes}))
            for kind, payload in conversation.frames():
                if kind != DATA:
                    raise AgentProtocolError(
                        f"the guest agent sent a frame of type {kind} in the reply of a read")
                received += len(payload)
                if received > max_bytes:
                    raise AgentRefused(TOO_LARGE, f"{path} is larger than {max_bytes} bytes")
                yield payload

    def disk(self, timeout_s: float = 10.0) -> DiskUsage:
        """Size and usage of the guest's root file system."""
        return _disk_usage(self._call("disk", {}, Deadline(timeout_s)))

    def grow_disk(self, device_bytes: int = 0, timeout_s: float = 120.0) -> DiskUsage:
        """Let the mounted root file system fill its device, once the guest sees at least
        `device_bytes` of it.

        Open files are undisturbed; a file system that fills its device already stays as it is.
        """
        return _disk_usage(
            self._call("grow_disk", {"deviceBytes": device_bytes}, Deadline(timeout_s)))

    def archive(self, directory: str, timeout_s: float) -> Iterator[bytes]:
        """The contents of a directory as an uncompressed tar (pax, `.` its root), in pieces of at
        most 1 MiB.

        Modes, numeric owners, times, links, holes and extended attributes are kept; sockets and
        other file systems are left out. The stream is complete only if the iteration ends without
        an exception. The caller limits its size: the guest is free to send for as long as
        `timeout_s` allows.
        """
        received = 0
        with self._open(Deadline(timeout_s)) as conversation:
            conversation.ask(self._request("archive", {"directory": directory}))
            for kind, payload in conversation.frames():
                if kind != DATA:
                    raise AgentProtocolError(
                        f"the guest agent sent a frame of type {kind} in the reply of an archive")
                received += len(payload)
                yield payload
            if _integer(conversation.outcome, "sizeBytes") != received:
                raise AgentProtocolError(
                    "the guest agent announced another size of an archive than it sent")

    def unarchive(self, directory: str, chunks: Iterable[bytes], timeout_s: float) -> None:
        """Unpack an uncompressed tar over a directory, which is made if it is missing.

        Raises AgentRefused for a stream that is broken or ends early; what it held before that has
        been unpacked. An exception from `chunks` breaks the stream off.
        """
        with self._open(Deadline(timeout_s)) as conversation:
            conversation.ask(self._request("unarchive", {"directory": directory}))
            conversation.upload(chunks)
            conversation.result()

    def sync(self, timeout_s: float = 120.0) -> None:
        """Flush the guest's file systems to its disk."""
        self._call("sync", {}, Deadline(timeout_s))

    def prepare(self, timeout_s: float = 120.0) -> int:
        """Get the guest's memory ready to be saved as a template; returns how many bytes are free
        and zero."""
        return _integer(self._call("prepare", {}, Deadline(timeout_s)), "freeBytes")

    def wait_port(self, port: int, timeout_s: float) -> bool:
        """True as soon as something in the guest listens on `port`, false if nothing did within
        `timeout_s`."""
        request = {"port": port, "timeoutMs": int(timeout_s * 1000)}
        return self._call("wait_port", request, Deadline(timeout_s + 5.0)).get("open") is True

    def _call(self, operation: str, fields: dict[str, Any], deadline: Deadline, *,
              patient: bool = False, stamp_clock: bool = False) -> dict[str, Any]:
        with self._open(deadline, patient=patient) as conversation:
            # once connected, or the time spent waiting for the guest would be missing from it
            if stamp_clock:
                fields = fields | {"clockNs": time.time_ns()}
            conversation.ask(self._request(operation, fields))
            return conversation.result()

    def _open(self, deadline: Deadline, *, patient: bool = False,
              on_idle: Callable[[], None] | None = None) -> Conversation:
        if patient:
            return Conversation(dial_patiently(self._address, deadline), deadline, on_idle)
        return Conversation(dial(self._address, deadline, self._connect_timeout_s), deadline,
                            on_idle)

    def _request(self, operation: str, fields: dict[str, Any]) -> dict[str, Any]:
        return {**fields, "op": operation, "token": self._token}


class _Output:
    """Collects one stream up to a cap, whatever the guest sends."""

    def __init__(self, cap_bytes: int) -> None:
        self._cap_bytes = cap_bytes
        self._content = bytearray()
        self.truncated = False

    def add(self, payload: bytes) -> None:
        room = self._cap_bytes - len(self._content)
        self.truncated = self.truncated or len(payload) > room
        self._content += payload[:room]

    def content(self) -> bytes:
        return bytes(self._content)


def _pong(reply: dict[str, Any]) -> Pong:
    adopted = reply.get("adopted")
    return Pong(
        agent_version=str(reply.get("agentVersion"))[:40], boot_id=str(reply.get("bootId"))[:40],
        adopted=None if adopted is None else str(adopted)[:200],
    )


def _exec_result(reply: dict[str, Any], stdout: _Output, stderr: _Output) -> ExecResult:
    log_path = reply.get("logPath")
    return ExecResult(
        stdout=stdout.content(), stderr=stderr.content(), exit_code=_integer(reply, "exitCode"),
        timed_out=reply.get("timedOut") is True,
        stdout_truncated=stdout.truncated or reply.get("stdoutTruncated") is True,
        stderr_truncated=stderr.truncated or reply.get("stderrTruncated") is True,
        pid=None if reply.get("pid") is None else _integer(reply, "pid"),
        log_path=None if log_path is None else str(log_path)[:4096],
    )


def _disk_usage(reply: dict[str, Any]) -> DiskUsage:
    return DiskUsage(*(_integer(reply, name)
                       for name in ("totalBytes", "usedBytes", "availableBytes")))


def _integer(reply: dict[str, Any], name: str) -> int:
    value = reply.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise AgentProtocolError(f"the guest agent sent no usable {name}")
    return value
