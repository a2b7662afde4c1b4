"""A receiver of agent callbacks that answers as it is told."""
import contextlib
import socket
import threading

NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"


class Receiver:
    """Answers every connection with the same bytes, after a while if need be, and keeps what it was
    sent."""

    def __init__(self, answer=NO_CONTENT, *, silent_s=0.0, drip=False, context=None):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=16)
        self.port = self.listener.getsockname()[1]
        self.requests, self.names = [], []
        self._answer, self._silent_s, self._drip, self._context = answer, silent_s, drip, context
        self._over = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                link, _ = self.listener.accept()
                self.requests.append(b"")
                with contextlib.suppress(OSError), link:
                    self._talk(link)

    def _talk(self, link):
        if self._context is not None:
            self._context.sni_callback = lambda _, name, __: self.names.append(name)
            with self._context.wrap_socket(link, server_side=True) as secured:
                return self._answer_one(secured)
        return self._answer_one(link)

    def _answer_one(self, link):
        received = b""
        while b"\r\n\r\n" not in received or len(
                received.partition(b"\r\n\r\n")[2]) < _length(received):
            received += link.recv(65536)
        self.requests[-1] = received
        self._over.wait(self._silent_s)
        for piece in ([self._answer]
                      if not self._drip else [bytes([byte]) for byte in self._answer]):
            link.sendall(piece)
            if self._drip and self._over.wait(0.3):
                return

    def url(self, path="/hook", scheme="http", host="127.0.0.1"):
        return f"{scheme}://{host}:{self.port}{path}"

    def close(self):
        self._over.set()
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


def _length(request):
    return int(request.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
