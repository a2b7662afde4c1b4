"""Moves files into a guest and out of it, one at a time or a directory as a tar stream."""
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from guest.agent.protocol import DATA, TOO_LARGE
from guest.client.caller import AgentCaller, integer
from guest.client.conversation import Conversation
from guest.client.deadline import Deadline
from guest.client.errors import AgentProtocolError, AgentRefused
from guest.client.pace import Pace


class FileCalls(AgentCaller):
    """The agent's `write`, `read`, `archive` and `unarchive`."""

    def write_file(self, path: str, content: bytes | Iterable[bytes], mode: int = 0o644, *,
                   size_bytes: int | None = None, timeout_s: float = 60.0,
                   wanted: Callable[[], bool] | None = None) -> int:
        """Replace a file of the guest as a whole, parents included; returns its size. After an
        error the old one stays.

        With `size_bytes`, a stream of any other length is refused and stores nothing. An exception
        from `content` breaks the stream off. `wanted` is as for `exec`.
        """
        if isinstance(content, bytes):
            content, size_bytes = [content], len(content)
        request = {"path": path, "mode": mode, "sizeBytes": size_bytes}
        with self._open(Deadline(timeout_s), wanted=wanted) as conversation:
            conversation.ask(self._request("write", request))
            conversation.upload(content)
            return integer(conversation.result(), "sizeBytes")

    def read_file(self, path: str, max_bytes: int, timeout_s: float = 60.0) -> bytes:
        """The content of a file; raises AgentRefused with code `too_large` if it exceeds
        `max_bytes`."""
        return b"".join(self.stream_file(path, max_bytes, timeout_s))

    def stream_file(self, path: str, max_bytes: int, timeout_s: float = 60.0,
                    wanted: Callable[[], bool] | None = None) -> Iterator[bytes]:
        """The content of a file in pieces of at most 1 MiB; the same limits as `read_file`.
        `wanted` is as for `exec`."""
        received = 0
        with self._open(Deadline(timeout_s), wanted=wanted) as conversation:
            request = {"path": path, "maxBytes": max_bytes}
            for payload in self._download(conversation, "read", request):
                received += len(payload)
                if received > max_bytes:
                    raise AgentRefused(TOO_LARGE, f"{path} is larger than {max_bytes} bytes")
                yield payload

    def archive(self, directory: str, timeout_s: float, *,
                min_bytes_per_s: float = 0) -> Iterator[bytes]:
        """The contents of a directory as an uncompressed tar (pax, `.` its root), in pieces of at
        most 1 MiB.

        Modes, numeric owners, times, links, holes and extended attributes are kept; sockets and
        other file systems are left out. The stream is complete only if the iteration ends without
        an exception. The caller limits its size: the guest is free to send for as long as
        `timeout_s` allows, unless it sends less than `min_bytes_per_s` for a while (AgentTooSlow).
        """
        received = 0
        with self._open(Pace(timeout_s, min_bytes_per_s)) as conversation:
            for payload in self._download(conversation, "archive", {"directory": directory}):
                received += len(payload)
                yield payload
            if integer(conversation.outcome, "sizeBytes") != received:
                raise AgentProtocolError(
                    "the guest agent announced another size of an archive than it sent")

    def unarchive(self, directory: str, chunks: Iterable[bytes], timeout_s: float, *,
                  min_bytes_per_s: float = 0) -> None:
        """Unpack an uncompressed tar over a directory, which is made if it is missing. A guest that
        takes less than `min_bytes_per_s` for a while is AgentTooSlow.

        Raises AgentRefused for a stream that is broken or ends early; what it held before that has
        been unpacked. An exception from `chunks` breaks the stream off.
        """
        with self._open(Pace(timeout_s, min_bytes_per_s)) as conversation:
            conversation.ask(self._request("unarchive", {"directory": directory}))
            conversation.upload(chunks)
            conversation.result()

    def _download(self, conversation: Conversation, operation: str,
                  fields: dict[str, Any]) -> Iterator[bytes]:
        """Ask, and yield the DATA frames of the reply."""
        conversation.ask(self._request(operation, fields))
        for kind, payload in conversation.frames():
            if kind != DATA:
                raise AgentProtocolError(
                    f"the guest agent sent a frame of type {kind} in the reply of {operation}")
            yield payload
