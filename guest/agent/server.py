"""Accepts connections, checks the token of each request and hands it to what serves its
operation."""
import socket
import sys
# what `hmac` exports, without OpenSSL in the memory of every guest
from _operator import _compare_digest as compare_digest
from collections.abc import Callable
from functools import partial
from typing import Any

from . import archives, files, upkeep
from .channel import Work
from .commands import rehearse, start_detached
from .connection import SOCKET_OPTIONS, Connection
from .execution import Execution
from .identity import Adoption, Identity, Unfinished, adopt, finish
from .kernel import Kernel
from .loop import READ, Loop, Timer
from .offload import Offload
from .protocol import (
    AGENT_VERSION,
    BAD_REQUEST,
    FAILED,
    FAILURE,
    RESULT,
    TOO_MANY,
    UNAUTHORIZED,
    Refused,
)
from .requests import exec_request, flag
from .shells.account import sandbox_user
from .shells.request import shell_request
from .shells.session import ShellSession

MAX_CONNECTIONS = 512
# So many that the rest of the connections is left for what the service has to do in the guest.
MAX_SHELLS = 64
BACKLOG = 256
# So long, in seconds, a caller who follows an adoption at once has for a command that need not wait
# for the rehearsal.
REHEARSAL_AFTER_S = 0.25


class Agent:
    """One agent: its identity, its listening socket and the operations it knows."""

    def __init__(self, loop: Loop, listener: socket.socket, identity: Identity, kernel: Kernel,
                 root: str) -> None:
        self._loop = loop
        self._listener = listener
        self._identity = identity
        self._kernel = kernel
        self._root = root
        self._offload = Offload(loop)
        self._connections: set[Connection] = set()
        self._shells: set[ShellSession] = set()
        self._rehearsal: Timer | None = None
        self._unfinished: Unfinished | None = None
        self._boot_id = _boot_id()
        self._immediate: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "ping": self._ping,
            "disk": lambda request: dict(upkeep.disk_usage(root)),
        }
        self._in_child: dict[str, Callable[[dict[str, Any]], Work]] = {
            "write": lambda request: files.writing(request, root),
            "read": lambda request: files.reading(request, root),
            "archive": lambda request: archives.archiving(request, root),
            "unarchive": lambda request: archives.unarchiving(request, root),
            "grow_disk": lambda request: upkeep.growing_disk(request, kernel, root),
            "sync": lambda request: upkeep.syncing(),
            "wait_port": upkeep.waiting_for_port,
            "prepare": lambda request: upkeep.preparing(root),
        }
        listener.setblocking(False)
        for option in SOCKET_OPTIONS:
            listener.setsockopt(*option)
        loop.watch(listener.fileno(), READ, self._accept)

    def _accept(self) -> None:
        if len(self._connections) >= MAX_CONNECTIONS:
            # until one closes; the kernel's backlog holds the rest
            self._loop.unwatch(self._listener.fileno())
            return
        try:
            peer, _ = self._listener.accept()
        except OSError:
            return  # the peer reset it before it was accepted
        self._connections.add(Connection(self._loop, peer, self._serve, self._closed))

    def _closed(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._loop.watch(self._listener.fileno(), READ, self._accept)

    def _serve(self, connection: Connection, request: dict[str, Any]) -> None:
        try:
            self._check_token(request.pop("token", None))
            self._dispatch(connection, request)
        except Refused as refusal:
            connection.finish(FAILURE, {"code": refusal.code, "message": refusal.message})
        except Exception as error:
            sys.excepthook(*sys.exc_info())
            connection.finish(FAILURE,
                              {"code": FAILED, "message": f"the agent could not do it: {error!r}"})

    def _check_token(self, token: Any) -> None:
        if not isinstance(token, str) or not compare_digest(token.encode("utf-8", "replace"),
                                                            self._identity.token):
            raise Refused(UNAUTHORIZED, "the token is not valid")

    def _dispatch(self, connection: Connection, request: dict[str, Any]) -> None:
        operation = request.get("op")
        if not isinstance(operation, str):
            raise Refused(BAD_REQUEST, "op must be the name of an operation")
        if operation == "adopt":
            self._adopt(connection, request)
        elif self._unfinished:
            raise self._unfinished.refusal
        elif operation == "exec":
            self._exec(connection, request)
        elif operation == "shell":
            self._open_shell(connection, request)
        elif operation in self._immediate:
            connection.finish(RESULT, self._immediate[operation](request))
        elif operation in self._in_child:
            self._offload.answer(connection, self._in_child[operation](request))
        else:
            raise Refused(BAD_REQUEST, f"there is no operation {operation!r}")

    def _exec(self, connection: Connection, request: dict[str, Any]) -> None:
        if self._rehearsal:
            self._rehearsal.cancel()
        command = exec_request(request, self._identity.env, self._root)
        if command.detached:
            connection.finish(RESULT, start_detached(self._loop, command, self._root))
        else:
            Execution(self._loop, connection, command)

    def _open_shell(self, connection: Connection, request: dict[str, Any]) -> None:
        if len(self._shells) >= MAX_SHELLS:
            raise Refused(TOO_MANY, f"{MAX_SHELLS} shells are open already")
        account = sandbox_user(self._root)
        wanted = shell_request(request, account, self._identity.env, self._root)
        self._shells.add(
            ShellSession(self._loop, connection, wanted, account, self._shells.discard))

    def _ping(self, request: dict[str, Any]) -> dict[str, Any]:
        return {
            "agentVersion": AGENT_VERSION, "bootId": self._boot_id,
            "adopted": self._identity.sandbox_id
        }

    def _adopt(self, connection: Connection, request: dict[str, Any]) -> None:
        is_cold = flag(request, "rehearse")
        adoption = adopt(request, self._root, self._identity, self._unfinished)
        self._identity = adoption.identity
        if is_cold:
            self._rehearsal = self._loop.call_later(REHEARSAL_AFTER_S,
                                                    partial(rehearse, self._loop))
        # A guest is adopted when it was restored or cloned: the peers of its shells were elsewhere.
        for shell in list(self._shells):
            shell.drop()
        connection.finish(RESULT, {"adopted": adoption.identity.sandbox_id})
        # this turn, after what sends the answer, and so before any other request
        self._loop.call_at_end(partial(self.finish_adoption, adoption))

    def finish_adoption(self, adoption: Adoption) -> None:
        """Do what follows the answer to an adoption; until it is done the agent serves nobody."""
        self._unfinished = finish(adoption, self._kernel, self._root)


def _boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()
