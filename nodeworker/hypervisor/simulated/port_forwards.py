"""Host ports of one simulated guest: what its guest serves there is a server of this host, to which
the bytes are passed on."""
import contextlib
import socket
import threading
from collections.abc import Mapping

from nodeworker.hypervisor.simulated.guest import Guest

_PIECE_BYTES = 64 * 1024


class ForwardedPorts:
    """The ports of the node's address that lead to a guest; one on which nobody serves refuses
    connections."""

    def __init__(self, guest: Guest, address: str) -> None:
        self._guest, self._address = guest, address
        self._wanted: dict[int, int] = {}
        self._listening: dict[int, socket.socket] = {}
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        guest.on_change = self.refresh

    def replace(self, ports: Mapping[int, int]) -> None:
        """Make `ports` (host port -> guest port) those that lead to the guest."""
        self._wanted = dict(ports)
        self.refresh()

    def refresh(self) -> None:
        """Listen where the guest serves something, and nowhere else. Raises OSError."""
        with self._lock:
            served = {host: self._guest.servers[guest] for host, guest in self._wanted.items()
                      if guest in self._guest.servers}
            for host in set(self._listening) - set(served):
                _end(self._listening.pop(host))
            for host in set(served) - set(self._listening):
                listener = socket.create_server((self._address, host), backlog=1024)
                self._listening[host] = listener
                threading.Thread(target=self._accept, args=(listener, served[host]),
                                 daemon=True).start()

    def close(self) -> None:
        """Refuse what comes, and break off what is open."""
        self._wanted = {}
        self.refresh()
        with self._lock:
            for one in self._open:
                _end(one)

    def _accept(self, listener: socket.socket, server_port: int) -> None:
        with listener, contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=self._serve, args=(client, server_port),
                                 daemon=True).start()

    def _serve(self, client: socket.socket, server_port: int) -> None:
        with client, contextlib.suppress(OSError):
            with socket.create_connection(("127.0.0.1", server_port), timeout=10) as server:
                server.settimeout(None)
                both = {client, server}
                for one in both:
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with self._lock:
                    self._open |= both
                try:
                    back = threading.Thread(target=_pass_on, args=(server, client), daemon=True)
                    back.start()
                    _pass_on(client, server)
                    back.join()
                finally:
                    with self._lock:
                        self._open -= both


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(_PIECE_BYTES):
            target.sendall(piece)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def _end(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
