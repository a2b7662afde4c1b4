"""A process that passes bytes on between its callers and one port, and does nothing else: what
anything in between costs at least. `python -m tests.clients.bare_relay PORT` prints its own port.
"""
import asyncio
import contextlib
import subprocess
import sys

from bin.stack.site import ROOT


class Side(asyncio.Protocol):
    """One of the two connections of a caller; what comes before `other` is there waits for it."""

    def __init__(self, other=None):
        self.other, self.transport, self.waiting = other, None, []

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        if self.other is None:
            self.waiting.append(data)
        else:
            self.other.transport.write(data)

    def connection_lost(self, exc):
        if self.other is not None:
            self.other.transport.close()


class Caller(Side):
    def __init__(self, port):
        super().__init__()
        self._port = port

    def connection_made(self, transport):
        super().connection_made(transport)
        self._connecting = asyncio.ensure_future(self._connect())

    async def _connect(self):
        loop = asyncio.get_running_loop()
        _, side = await loop.create_connection(lambda: Side(self), "127.0.0.1", self._port)
        side.transport.write(b"".join(self.waiting))
        self.other = side


async def serve(port):
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Caller(port), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextlib.contextmanager
def bare_relay(port):
    """Its port, in the block, where it leads to `port` of this host."""
    with subprocess.Popen([sys.executable, "-m", __spec__.name, str(port)], cwd=ROOT,
                          stdout=subprocess.PIPE) as process:
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
