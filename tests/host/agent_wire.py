"""A bare connection to the agent, for sending what the client never would."""
import select
import socket
import struct
from typing import Any

from guest.agent.protocol import FAILURE, REQUEST, RESULT, FrameReader, decode_json, encode_json


class Wire:
    """One TCP connection; `request` and `frames` speak the protocol, `socket` allows anything
    else."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def request(self, operation: str, token: Any, **fields: Any) -> None:
        self.socket.sendall(encode_json(REQUEST, {"op": operation, "token": token, **fields}))

    def is_answered(self) -> bool:
        """Whether something of a reply is there already; of an agent that nobody else turns."""
        return bool(select.select([self.socket], [], [], 0)[0])

    def frames(self) -> list[tuple[int, bytes]]:
        """Everything the agent sends until it closes."""
        reader = FrameReader()
        found: list[tuple[int, bytes]] = []
        while True:
            try:
                received = self.socket.recv(65536)
            except ConnectionResetError:
                return found
            if not received:
                return found
            reader.feed(received)
            found += list(reader.frames())

    def answer(self) -> tuple[int, dict[str, Any]]:
        """The last frame of the reply, decoded."""
        kind, payload = self.frames()[-1]
        return kind, decode_json(payload)

    def kept_answer(self) -> tuple[int, dict[str, Any]]:
        """The last frame of a reply, decoded, without waiting for the agent to close."""
        reader = FrameReader()
        while True:
            reader.feed(self.socket.recv(65536))
            for kind, payload in reader.frames():
                if kind in (RESULT, FAILURE):
                    return kind, decode_json(payload)

    def reset(self) -> None:
        """Close with a TCP reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


def succeeded(answer: tuple[int, dict[str, Any]]) -> bool:
    return answer[0] == RESULT
