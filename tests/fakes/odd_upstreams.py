"""Upstreams over real sockets that do not answer, each in a way of its own, and one whose kept
connections are good for nothing."""
import contextlib
import json
import socket
import struct
import threading
import time

ANSWER = {"id": "chat", "object": "chat.completion", "model": "odd",
          "choices": [{"index": 0, "finish_reason": "stop",
                       "message": {"role": "assistant", "content": "odd"}}],
          "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}


class OddUpstream:
    """Does `serve(self, link)` with each connection, whose number is in `connections`. With
    `backlog` None nothing listens at its port."""

    def __init__(self, serve=None, backlog=64):
        self.connections, self.over, self._serve = 0, threading.Event(), serve
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        if backlog is not None:
            self._socket.listen(backlog)
        self._threads = []
        if serve is not None:
            self._begin(self._accept)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/v1"

    def _begin(self, work, *arguments):
        self._threads.append(threading.Thread(target=work, args=arguments))
        self._threads[-1].start()

    def _accept(self):
        self._socket.settimeout(0.1)
        while not self.over.is_set():
            with contextlib.suppress(TimeoutError):
                link, _ = self._socket.accept()
                self.connections += 1
                self._begin(self._one, link)

    def _one(self, link):
        with link, contextlib.suppress(OSError):
            link.settimeout(0.1)
            self._serve(self, link)

    def close(self):
        self.over.set()
        for thread in self._threads:
            thread.join()
        self._socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


@contextlib.contextmanager
def full():
    """An upstream that takes no connection more: the kernel lets whoever comes wait."""
    with OddUpstream(backlog=0) as made, socket.create_connection(("127.0.0.1", made.port)):
        yield made


def silent(upstream, link):
    """Takes the request, and says nothing."""
    while not upstream.over.is_set():
        with contextlib.suppress(TimeoutError):
            if not link.recv(1 << 20):
                return


def deaf(upstream, link):
    """Takes nothing."""
    upstream.over.wait()


def refusing_halfway(upstream, link):
    """Refuses the request, and is gone before it has said why."""
    read_request(upstream, link)
    link.sendall(b"HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\n"
                 b'Retry-After: 7\r\nContent-Length: 1000\r\n\r\n{"error": "half of a key')


def once(*, reset=False, together=1):
    """An upstream that answers one request on each connection, once so many have come, keeps it,
    and ends it or resets it when the next request has come."""
    def serve(upstream, link):
        read_request(upstream, link)
        while upstream.connections < together and not upstream.over.is_set():
            time.sleep(0.01)
        body = json.dumps(ANSWER).encode()
        link.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                     b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        read_request(upstream, link)
        if reset:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    return serve


def read_request(upstream, link):
    """Read one request whole, or until the other side is done."""
    read, wanted = b"", None
    while wanted is None or len(read) < wanted:
        if upstream.over.is_set():
            raise ConnectionError
        with contextlib.suppress(TimeoutError):
            piece = link.recv(1 << 20)
            if not piece:
                raise ConnectionError
            read += piece
        if wanted is None and (end := read.find(b"\r\n\r\n")) >= 0:
            _, _, rest = read[:end].lower().partition(b"content-length:")
            wanted = end + 4 + int(rest.split(b"\r\n")[0])
