"""A gunicorn worker with threads that no client can hold by being slow.

gunicorn's own takes a thread for a connection as soon as a byte of a request is there, and waits in
it for the rest, for ever. Here:

1. The main loop collects the head of each request, and a small body, without a thread
   (`app.http.server.arriving`). A head that is not complete after `SVC_HEAD_S`, or such a body
   after `SVC_BODY_SILENCE_S`, is answered with 408, whatever trickles.
2. A complete request goes to a thread. An upload or a larger body is read there, at a pace
   (`app.http.server.body_pace`); each piece of the answer has to be taken within the same time.
   Much that the route left unread of a body is read no further: the connection closes, and where
   the length was known the answer says so.
3. A closed connection is drained for up to two seconds by the main loop, so that its client reads
   the answer; gunicorn's own does that too, and takes no other request meanwhile.
4. When there are too many connections, or what they have sent takes too much memory, the one that
   has waited longest gives way.
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

from gunicorn import http, util
from gunicorn.workers.gthread import TConn, ThreadWorker

from app.http.server.arriving import Arriving, Stage
from app.http.server.body_pace import PacedSocket
from app.http.server.parent import end_with_parent
from config.settings import get_settings

_RECEIVE_BYTES = 64 * 1024
_LINGER_S, _LINGER_BYTES, _LINGERING_MAX = 2.0, 64 * 1024, 1000
_STOPPING_S = 2.0
# As long may a turn of the loop give up clients before it looks at the others again.
_TURN_S = 0.002
# For a rest of a body that is on its way; one that is not does not hold the thread.
_UNREAD_S, _UNREAD_BYTES = 0.05, 64 * 1024
_OPEN_FILES = 65536
_READY = (Stage.COMPLETE, Stage.STREAMED, Stage.TOO_LARGE)
_COLLECTED_MAX_BYTES = 64 * 1024 * 1024


def _nothing() -> None:
    """Wakes the loop."""


def _first(line: dict["Connection", float]) -> Iterator[tuple["Connection", float]]:
    """The first of the line again and again, as long as there is another one."""
    last = None
    while line and (first := next(iter(line.items()))) != last:
        yield first
        last = first


class Connection(TConn):
    """A connection whose client may be slow: `arriving` is the request that is being collected."""

    def __init__(self, cfg: Any, sock: socket.socket, client: Any, server: Any, silence_s: float,
                 linger: Callable[[socket.socket], None]) -> None:
        super().__init__(cfg, sock, client, server)
        self.parser: Any = None
        self.arriving = Arriving()
        self.data_ready = True
        self.source = PacedSocket(sock, silence_s)
        self._linger = linger

    def close(self, graceful: bool = False) -> None:
        """Close at once, or `graceful`ly: after what was written has been read."""
        if graceful:
            self._linger(self.sock)
        else:
            util.close(self.sock)

    def give_to_parser(self) -> None:
        """Let the parser have what was collected."""
        if self.parser is None:
            self.parser = http.get_parser(self.cfg, self.source, self.client)
        self.parser.unreader.unread(bytes(self.arriving.received))
        # Of a head that is too large or breaks off the parser says what is wrong with it.
        stage = self.arriving.stage
        self.source.begin(ended=stage is not Stage.STREAMED, too_large=stage is Stage.TOO_LARGE)
        self.arriving = Arriving()


class PatientWorker(ThreadWorker):
    """See the module."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._settings = get_settings()
        # For each stage those that wait in it, with the time by which it must have ended; as all
        # of a stage have the same time, the first is always the next to be given up.
        self._waiting: dict[Stage, dict[Connection, float]] = {Stage.HEAD: {}, Stage.BODY: {}}
        self._stop_by: float | None = None
        self._collected_bytes = 0
        self._lingering: dict[socket.socket, tuple[float, int]] = {}

    def run(self) -> None:
        """The main loop of the process."""
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = min(hard, _OPEN_FILES) if hard != resource.RLIM_INFINITY else _OPEN_FILES
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        end_with_parent(self.ppid)
        super().run()

    # -- connections come and go

    def accept(self, listener: Any) -> None:
        """Take a new connection, and wait for its first request."""
        try:
            link, client = listener.accept()
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.ECONNABORTED, errno.EWOULDBLOCK):
                raise
            return
        self._make_room()
        self.nr_conns += 1
        self._collect(Connection(self.cfg, link, client, listener.getsockname(),
                                 self._settings.body_silence_s, self._linger))

    def _make_room(self) -> None:
        """While there is still room for one: the loop stops to accept when there is none."""
        if self.nr_conns < self.worker_connections - 1:
            return
        oldest = self._oldest()
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
        """Wait for the rest of a request; some of it may be here."""
        conn.sock.setblocking(False)
        if conn.arriving.stage in _READY:
            self._hand_over(conn)
            return
        self._wait(conn)
        self._collected_bytes += len(conn.arriving.received)
        self.poller.register(conn.sock, selectors.EVENT_READ, partial(self._receive, conn))

    def _receive(self, conn: Connection, link: socket.socket) -> None:
        arriving, before = conn.arriving, conn.arriving.stage
        try:
            data = link.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            self._give_up(conn)
            return
        self._collected_bytes -= len(arriving.received)
        arriving.add(data)
        self._collected_bytes += len(arriving.received)
        if not data and not arriving.received:
            self._give_up(conn)
        elif not data or arriving.stage in _READY:
            self._forget(conn)
            self._hand_over(conn)
        elif arriving.stage is not before:
            del self._waiting[before][conn]
            self._wait(conn)
        oldest = self._oldest()
        if oldest is not None and self._collected_bytes > _COLLECTED_MAX_BYTES:
            self._give_up(oldest)

    def _wait(self, conn: Connection) -> None:
        """Let it have the time of its stage."""
        stage, settings = conn.arriving.stage, self._settings
        limit_s = settings.head_s if stage is Stage.HEAD else settings.body_silence_s
        self._waiting[stage][conn] = time.monotonic() + limit_s
        if stage is Stage.BODY and conn.arriving.wants_continue:
            with contextlib.suppress(OSError):
                util.write_nonblock(conn.sock, b"HTTP/1.1 100 Continue\r\n\r\n")

    def _oldest(self) -> Connection | None:
        return next((conn for line in self._waiting.values() for conn in line), None)

    def _hand_over(self, conn: Connection) -> None:
        conn.give_to_parser()
        super().enqueue_req(conn)

    def _forget(self, conn: Connection) -> None:
        for line in self._waiting.values():
            line.pop(conn, None)
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
        for line in self._waiting.values():
            for conn, until in list(line.items()) if self._stop_by else _first(line):
                stops = self._stop_by and (not conn.arriving.received or self._stop_by <= present)
                if until <= present or stops:
                    yield partial(self._give_up, conn, answer=True)
        while self._lingering:
            link, (until, _) = next(iter(self._lingering.items()))
            if until > present:
                return
            yield partial(self._end, link)

    # -- closing without haste

    def _linger(self, link: socket.socket) -> None:
        try:
            link.setblocking(False)
            link.shutdown(socket.SHUT_WR)
        except OSError:
            util.close(link)
            return
        if len(self._lingering) >= _LINGERING_MAX:
            self._end(next(iter(self._lingering)))
        self._lingering[link] = time.monotonic() + _LINGER_S, 0
        self.poller.register(link, selectors.EVENT_READ, self._drain)

    def _drain(self, link: socket.socket) -> None:
        until, drained = self._lingering[link]
        try:
            data = link.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._lingering[link] = until, drained + len(data)
        if not data or drained + len(data) > _LINGER_BYTES:
            self._end(link)

    def _end(self, link: socket.socket) -> None:
        del self._lingering[link]
        self.poller.unregister(link)
        util.close(link)

    # -- in a thread

    def handle_request(self, req: Any, conn: Connection) -> Any:
        """Run one request; a client that does not take its answer counts as gone."""
        conn.sock.settimeout(self._settings.body_silence_s)
        conn.source.start_clock()
        # What the route leaves of its body; of one in chunks nobody knows.
        closes, body = req.should_close, req.body.reader
        req.should_close = lambda: closes() or getattr(body, "length", 0) > _UNREAD_BYTES
        try:
            return super().handle_request(req, conn)
        except TimeoutError as error:
            raise BrokenPipeError(errno.EPIPE, "the client takes nothing") from error

    def _keepalive_after(self, conn: Connection, keepalive: Any) -> bool:
        """The answer has said that the connection stays, so it does wherever the body was read."""
        conn.source.limit_rest(_UNREAD_S)
        return bool(keepalive) and bool(conn.parser.finish_body(max_bytes=_UNREAD_BYTES))

    # -- the end

    def handle_exit(self, sig: int, frame: Any) -> None:
        """SIGTERM: of the master, of a supervisor, or of the kernel because the master is gone."""
        super().handle_exit(sig, frame)
        self.method_queue.defer(self._close_listeners)

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
