"""A gunicorn worker with threads that no client can hold by being slow.

gunicorn's own takes a thread for a connection as soon as a byte of a request is there, and waits in
it for the rest, for ever. Here:

1. The main loop collects the head of each request, and a small body, without a thread
   (`app.http.server.arriving`). A head that is not complete after `SVC_HEAD_S`, or such a body
   after `SVC_BODY_SILENCE_S`, is answered with 408, whatever trickles.
2. A complete request goes to a thread (`app.http.server.threads`), which also gives the connection
   back to the loop, for the next one. An upload or a larger body is read there, at a pace
   (`app.http.server.body_pace`); each piece of the answer has to be taken within the same time.
   Much that the route left unread of a body is read no further: the connection closes, and where
   the length was known the answer says so.
3. A closed connection is drained for up to two seconds by the main loop, so that its client reads
   the answer; gunicorn's own does that too, and takes no other request meanwhile.
4. When there are too many connections, or what they have sent takes too much memory, the one gives
   way that has waited longest for the head, or the small body, that it is at.
5. A worker whose master is gone, or which is to end, lets go of the port at once and finishes the
   requests that it has.
"""
import contextlib
import errno
import resource
import selectors
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from gunicorn import util
from gunicorn.http.errors import ParseException
from gunicorn.workers.gthread import ThreadWorker

from app.http.server.arriving import Arriving, Stage
from app.http.server.connection import Connection
from app.http.server.lingering import Lingering
from app.http.server.parent import end_with_parent
from app.http.server.threads import Threads
from app.http.server.waiting import Waiting
from config.settings import get_settings

_RECEIVE_BYTES = 64 * 1024
_STOPPING_S = 2.0
# As long may a turn of the loop give up clients before it looks at the others again.
_TURN_S = 0.002
# As long does one with work wait for another process to take a connection.
_LEFT_TO_OTHERS_S = 0.0003
# For a rest of a body that is on its way; one that is not does not hold the thread.
_UNREAD_S, _UNREAD_BYTES = 0.05, 64 * 1024
_OPEN_FILES = 65536
_READY = (Stage.COMPLETE, Stage.STREAMED, Stage.TOO_LARGE)
_COLLECTED_MAX_BYTES = 64 * 1024 * 1024


def _nothing() -> None:
    """Wakes the loop."""


class _Served:
    """What gunicorn asks about a request that a thread has run."""

    def __init__(self, is_kept: bool) -> None:
        self._is_kept = is_kept

    def cancelled(self) -> bool:
        return False

    def result(self) -> bool:
        """Whether its connection stays open for another."""
        return self._is_kept


class PatientWorker(ThreadWorker):
    """See the module."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._settings = get_settings()
        self._waiting = Waiting({Stage.HEAD: self._settings.head_s,
                                 Stage.BODY: self._settings.body_silence_s})
        self._stop_by: float | None = None
        self._collected_bytes = 0

    def get_thread_pool(self) -> Threads:
        """What requests are run by."""
        return Threads(self.cfg.threads)

    def run(self) -> None:
        """The main loop of the process."""
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = min(hard, _OPEN_FILES) if hard != resource.RLIM_INFINITY else _OPEN_FILES
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        end_with_parent(self.ppid)
        self._lingering = Lingering(self.poller)
        super().run()

    def wait_for_and_dispatch_events(self, timeout: float) -> None:
        """Call back for what has come, but not for what a callback before has closed."""
        waited_for = self.poller.get_map()
        for key, _ in self.poller.select(timeout):
            if waited_for.get(key.fd) is key:
                key.data(key.fileobj)

    # -- connections come and go

    def accept(self, listener: Any) -> None:
        """Take a new connection, and wait for its first request. A process that has work leaves it
        to one that has none, which is there in a moment."""
        if self.cfg.workers > 1 and self.tpool.busy:
            time.sleep(_LEFT_TO_OTHERS_S)
        try:
            link, client = listener.accept()
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.ECONNABORTED, errno.EWOULDBLOCK):
                raise
            return
        self._make_room()
        self.nr_conns += 1
        self._collect(self._connection(link, client, listener.getsockname()))

    def _connection(self, link: socket.socket, client: Any, server: Any) -> Connection:
        return Connection(self.cfg, link, client, server, self._settings.body_silence_s,
                          self._lingering.close)

    def _make_room(self) -> None:
        """While there is still room for one: the loop stops to accept when there is none."""
        if self.nr_conns < self.worker_connections - 1:
            return
        oldest = self._waiting.oldest()
        if oldest is not None:
            self._give_up(oldest)
        elif self.keepalived_conns:
            self.keepalived_conns[0].timeout = 0
            self.murder_keepalived()

    def enqueue_req(self, conn: Connection) -> None:
        """Called when the next request of a kept connection begins, or has been read ahead."""
        conn.arriving = Arriving(conn.parser.unreader.take_buffered())
        self._collect(conn)

    def _collect(self, conn: Connection) -> None:
        """Wait for the rest of a request; some of it may be here, or all."""
        conn.sock.setblocking(False)
        if conn.arriving.stage in _READY:
            self._hand_over(conn)
            return
        comes = self._read(conn)
        if not comes and not conn.arriving.received:
            self.nr_conns -= 1
            conn.close()
        elif not comes or conn.arriving.stage in _READY:
            self._hand_over(conn)
        else:
            self._wait(conn)
            self._collected_bytes += len(conn.arriving.received)
            self.poller.register(conn.sock, selectors.EVENT_READ, partial(self._receive, conn))

    def _receive(self, conn: Connection, link: socket.socket) -> None:
        before, known_bytes = conn.arriving.stage, len(conn.arriving.received)
        comes = self._read(conn)
        self._collected_bytes += len(conn.arriving.received) - known_bytes
        if not comes and not conn.arriving.received:
            self._give_up(conn)
        elif not comes or conn.arriving.stage in _READY:
            self._forget(conn)
            self._hand_over(conn)
        elif conn.arriving.stage is not before:
            self._waiting.remove(conn)
            self._wait(conn)
        while self._collected_bytes > _COLLECTED_MAX_BYTES and (oldest := self._waiting.oldest()):
            self._give_up(oldest)

    def _read(self, conn: Connection) -> bool:
        """Take what has come of a request; False if no more will."""
        try:
            data = conn.sock.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            conn.arriving = Arriving()
            return False
        conn.arriving.add(data)
        return bool(data)

    def _wait(self, conn: Connection) -> None:
        """Let it have the time of its stage."""
        self._waiting.add(conn)
        if conn.arriving.stage is Stage.BODY and conn.arriving.wants_continue:
            with contextlib.suppress(OSError):
                util.write_nonblock(conn.sock, b"HTTP/1.1 100 Continue\r\n\r\n")

    def _hand_over(self, conn: Connection) -> None:
        conn.give_to_parser()
        self.tpool.run(partial(self._serve, conn))

    def _forget(self, conn: Connection) -> None:
        self._waiting.remove(conn)
        self._collected_bytes -= len(conn.arriving.received)
        self.poller.unregister(conn.sock)

    def _give_up(self, conn: Connection, answer: bool = False) -> None:
        self._forget(conn)
        self.nr_conns -= 1
        if answer and conn.arriving.received:
            with contextlib.suppress(OSError):
                util.write_error(conn.sock, 408, "Request Timeout",
                                 "The request did not come within its time")
        conn.close(graceful=answer)

    def murder_pending(self) -> None:
        """Give up what has waited for too long; called in each turn of the loop. What is due at
        once in great numbers is spread over several turns, so that requests are not held up."""
        present = time.monotonic()
        for give_up in self._overdue(present):
            give_up()
            if time.monotonic() - present > _TURN_S:
                self.method_queue.defer(_nothing)  # another turn, at once
                return

    def _overdue(self, present: float) -> Iterator[Callable[[], None]]:
        if not self.alive:
            self._stop_by = self._stop_by or present + _STOPPING_S
        for conn, until in self._waiting.all() if self._stop_by else self._waiting.first_ones():
            stops = self._stop_by and (not conn.arriving.received or self._stop_by <= present)
            if until <= present or stops:
                yield partial(self._give_up, conn, answer=True)
        yield from self._lingering.overdue(present)

    # -- in a thread

    def _serve(self, conn: Connection) -> None:
        is_kept = False
        try:
            is_kept = self.handle(conn)
        finally:
            if not (is_kept and self._keep(conn)):
                self.method_queue.defer(self.finish_request, conn, _Served(is_kept))

    def _keep(self, conn: Connection) -> bool:
        """Let the loop wait for the next request of a connection, without waking it for that;
        False where it has to decide more."""
        if not self.alive or conn.parser.unreader.buf.getvalue():
            return False
        conn.sock.setblocking(False)
        conn.set_timeout()
        self.keepalived_conns.append(conn)
        if not self.alive:  # what was kept before was told already
            conn.timeout = min(conn.timeout, time.monotonic() + _STOPPING_S)
        with contextlib.suppress(ValueError):  # it had to make room in this moment
            self.poller.register(conn.sock, selectors.EVENT_READ,
                                 partial(self.on_client_socket_readable, conn))
        return True

    def handle_request(self, req: Any, conn: Connection) -> Any:
        """Run one request; a client that does not take its answer counts as gone."""
        conn.sock.settimeout(self._settings.body_silence_s)
        conn.source.start_clock()
        # What the route leaves of its body; of one in chunks nobody knows.
        req.body.is_slow = not conn.source.is_ended
        closes, body = req.should_close, req.body.reader
        req.should_close = lambda: closes() or getattr(body, "length", 0) > _UNREAD_BYTES
        try:
            return super().handle_request(req, conn)
        except TimeoutError as error:
            raise BrokenPipeError(errno.EPIPE, "the client takes nothing") from error

    def _keepalive_after(self, conn: Connection, keepalive: Any) -> bool:
        """The answer has said that the connection stays, so it does wherever the body was read."""
        conn.source.limit_rest(_UNREAD_S)
        with contextlib.suppress(ParseException):  # the request has had its answer
            is_read = bool(keepalive) and conn.parser.finish_body(max_bytes=_UNREAD_BYTES)
            return bool(is_read) and not conn.source.lacked_more
        return False

    # -- the end

    def handle_exit(self, sig: int, frame: Any) -> None:
        """SIGTERM: of the master, of a supervisor, or of the kernel because the master is gone."""
        super().handle_exit(sig, frame)
        self.method_queue.defer(self._close_listeners)

    def _cap_keepalive(self, deadline: float) -> None:
        """As gunicorn's, though threads still add connections meanwhile."""
        for conn in list(self.keepalived_conns):
            conn.timeout = min(conn.timeout, deadline)

    def is_parent_alive(self) -> bool:
        """False once the master is gone; the port is then free."""
        alive = bool(super().is_parent_alive())
        if not alive:
            self._close_listeners()
        return alive

    def _close_listeners(self) -> None:
        self.set_accept_enabled(False)
        for listener in self.sockets:
            listener.close()
