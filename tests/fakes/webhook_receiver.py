"""A webhook receiver on a real socket that is as good or as bad as its path says, and remembers
what came.

`/ok`, `/fail`, `/redirect`, `/hang`, `/drip`, `/reset`, `/close`, `/garbage`, `/flood` (endless
body after a 200), `/headers` (endless headers), `/slow` (200 after a second), `/late` (200 after
`LATE_S`, without the body that it announces), `/twice` (fails the first two attempts of each
event), `/coin` (fails three attempts in ten, each in another way).
`/…?…` is part of the path.
"""
import asyncio
import hashlib
import socket
import ssl
import struct
import threading
import time
from collections import defaultdict
from dataclasses import dataclass

LATE_S = 2.5


@dataclass(frozen=True)
class Arrival:
    """One request as it came; `failed` is what it was told."""

    at: float
    path: str
    headers: dict[str, str]
    body: bytes
    failed: bool

    @property
    def event_id(self) -> str:
        return self.headers["x-svc-webhook-id"]


class Receiver(threading.Thread):
    """Listens on a port of its own until `close`."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(name="receiver", daemon=True)
        self._tls = tls
        self._loop = asyncio.new_event_loop()
        self._lock = threading.Lock()
        self._arrivals: dict[str, list[Arrival]] = defaultdict(list)
        self._counts: dict[tuple[str, str], int] = defaultdict(int)
        self._writers: set[asyncio.StreamWriter] = set()
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port: int = self._socket.getsockname()[1]
        self.start()

    def url(self, path: str) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}{path}"

    def arrivals(self, path: str) -> list[Arrival]:
        """What came to a path so far, in order."""
        with self._lock:
            return list(self._arrivals[path])

    def by_event(self, path: str) -> dict[str, list[Arrival]]:
        """The same by event id."""
        found: dict[str, list[Arrival]] = defaultdict(list)
        for arrival in self.arrivals(path):
            found[arrival.event_id].append(arrival)
        return found

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self.join(5)
        self._socket.close()

    def run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            asyncio.start_server(self._serve, sock=self._socket, ssl=self._tls))
        self._loop.run_forever()
        server.close()
        for writer in self._writers:
            writer.transport.abort()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0.05))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.strip().split("\r\n")
            headers = {
                name.lower(): value.strip()
                for name, value in (line.split(":", 1) for line in lines)
            }
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            await self._answer(first.split()[1], headers, body, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer(self, path: str, headers: dict[str, str], body: bytes,
                      writer: asyncio.StreamWriter) -> None:
        manner = self._manner(path, headers)
        arrival = Arrival(
            time.time(), path, headers, body, failed=manner not in ("ok", "slow", "late", "flood")
        )
        with self._lock:
            self._arrivals[path].append(arrival)
        await getattr(self, f"_{manner}")(writer)

    def _manner(self, path: str, headers: dict[str, str]) -> str:
        manner = path.split("?")[0].strip("/").split("/")[0]
        if manner not in ("twice", "coin"):
            return manner
        key = (path, headers["x-svc-webhook-id"])
        self._counts[key] += 1
        if manner == "twice":
            return "fail" if self._counts[key] <= 2 else "ok"
        dice = hashlib.sha256(f"{key} {self._counts[key]}".encode()).digest()
        return ("fail", "reset", "close")[dice[1] % 3] if dice[0] < 77 else "ok"

    async def _ok(self, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    async def _slow(self, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(1)
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")

    async def _late(self, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(LATE_S)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")
        await asyncio.sleep(120)

    async def _fail(self, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n")

    async def _redirect(self, writer: asyncio.StreamWriter) -> None:
        writer.write(
            f"HTTP/1.1 307 Elsewhere\r\nLocation: {self.url('/ok')}\r\nContent-Length: 0\r\n\r\n"
            .encode()
        )

    async def _hang(self, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(120)

    async def _drip(self, writer: asyncio.StreamWriter) -> None:
        for byte in b"HTTP/1.1 200 OK\r\nX-Slow: " + b"x" * 10_000:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.2)

    async def _close(self, writer: asyncio.StreamWriter) -> None:
        pass

    async def _reset(self, writer: asyncio.StreamWriter) -> None:
        link = writer.get_extra_info("socket")
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async def _garbage(self, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-something\r\n\r\n")

    async def _flood(self, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"10000\r\n" + bytes(0x10000) + b"\r\n")
            await writer.drain()

    async def _headers(self, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(b"X-More: " + b"y" * 1000 + b"\r\n")
            await writer.drain()
