"""Opens TCP connections to guests that are just waking up.

A SYN sent while the guest's network card is not yet running is lost, and the kernel would send the
next one a whole second later. So a patient dial starts another connection every few milliseconds,
less often after a second, keeps the earlier ones (the tap may deliver them late), and takes
whichever is accepted first.
"""
import errno
import select
import socket
import time

from guest.client.deadline import Deadline
from guest.client.errors import AgentTimeout, AgentUnreachable

REFUSED_PAUSE_S = 0.003
REDIAL_S, REDIAL_LATER_S, LATER_S = 0.02, 0.06, 1.0
# Older attempts are given up, so that a guest that is away for long does not collect them.
MAX_ATTEMPTS = 8


def dial(address: tuple[str, int], deadline: Deadline, connect_timeout_s: float) -> socket.socket:
    """Connect once; raises AgentUnreachable if it is refused or takes longer than
    `connect_timeout_s`."""
    try:
        connection = socket.create_connection(address, timeout=min(connect_timeout_s,
                                                                   deadline.left_s()))
    except OSError as error:
        raise AgentUnreachable(f"the guest agent cannot be reached: {error}") from error
    _tune(connection)
    return connection


def dial_patiently(address: tuple[str, int], deadline: Deadline) -> socket.socket:
    """Connect as soon as the guest accepts, trying until the deadline; raises AgentTimeout."""
    attempts: list[socket.socket] = []
    later = time.monotonic() + LATER_S
    try:
        while True:
            deadline.left_s()
            attempts.append(_begin(address))
            present = time.monotonic()
            pause_s = REDIAL_S if present < later else REDIAL_LATER_S
            winner = _first_connected(attempts, present + pause_s)
            if winner:
                attempts.remove(winner)
                _tune(winner)
                return winner
            if len(attempts) > MAX_ATTEMPTS:
                attempts.pop(0).close()
    except AgentTimeout as timeout:
        raise AgentTimeout("the guest agent did not come up in time") from timeout
    finally:
        for attempt in attempts:
            attempt.close()


def _begin(address: tuple[str, int]) -> socket.socket:
    attempt = socket.socket()
    attempt.setblocking(False)
    attempt.connect_ex(address)  # what came of it shows when it is writable
    return attempt


def _first_connected(attempts: list[socket.socket], until: float) -> socket.socket | None:
    """The first attempt to be accepted before `until`; failed ones are closed and removed from the
    list."""
    while (left := until - time.monotonic()) > 0:
        if not attempts:
            time.sleep(min(left, REFUSED_PAUSE_S))
            return None
        poller = select.poll()
        for attempt in attempts:
            poller.register(attempt, select.POLLOUT)
        ready = {descriptor for descriptor, _ in poller.poll(left * 1000)}
        for attempt in [attempt for attempt in attempts if attempt.fileno() in ready]:
            failure = attempt.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if not failure and _is_connected(attempt):
                return attempt
            attempts.remove(attempt)
            attempt.close()
    return None


def _is_connected(attempt: socket.socket) -> bool:
    try:
        attempt.getpeername()
    except OSError as error:
        if error.errno != errno.ENOTCONN:
            raise
        return False
    return True


def _tune(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
