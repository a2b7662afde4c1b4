"""Host TCP ports forwarded to guests by the kernel: elements of one nftables map, found by looking,
never from memory. The sets `asleep` and `awake` change together with it.

What is looked at is changed under one lock of the host, so that two workers do not undo each
other's changes.
"""
import fcntl
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from nodeworker.network import nft, ruleset


class ForwardTable:
    """The forwarded ports of one node (`prefix` names its nftables table, `directory` is where its
    lock is)."""

    def __init__(self, prefix: str, directory: Path) -> None:
        self._prefix = prefix
        self._lock_file = directory / "forwards.lock"
        self._mine = threading.RLock()
        self._depth = 0

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else changes the forwarded ports in the block; may be nested in one thread."""
        with self._mine:
            if self._depth:
                yield
                return
            descriptor = os.open(self._lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._depth += 1
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                yield
            finally:
                self._depth -= 1
                os.close(descriptor)

    def current(self) -> dict[int, tuple[str, int]]:
        """Host port -> (slot address, guest port), as the kernel has it."""
        found: dict[int, tuple[str, int]] = {}
        for item in nft.listing("map", "inet", self._prefix, ruleset.FORWARDS_MAP):
            for key, value in item.get("map", {}).get("elem", []):
                address, guest_port = value["concat"]
                found[int(key)] = (address, int(guest_port))
        return found

    def replace(self, address: str, ports: Mapping[int, int]) -> list[int]:
        """Make `ports` (host port -> guest port) exactly what is forwarded to `address`; takes
        ports over from others. Returns the host ports that no longer lead where they did."""
        with self.locked():
            return self._replace(address, ports)

    def _replace(self, address: str, ports: Mapping[int, int], more: str = "") -> list[int]:
        """`replace`, and in the same transaction `more` nft commands."""
        present = self.current()
        wanted = {host: (address, guest) for host, guest in ports.items()}
        stale = [host for host, target in present.items()
                 if (target[0] == address or host in wanted) and wanted.get(host) != target]
        missing = [(host, guest)
                   for host, guest in ports.items()
                   if present.get(host) != (address, guest)]
        commands = ruleset.delete_forwards(self._prefix, stale) if stale else ""
        commands += ruleset.add_forwards(self._prefix, address, missing) if missing else ""
        commands += more
        if commands:
            nft.apply(commands)
        return stale

    def add(self, address: str, ports: Mapping[int, int]) -> None:
        """Forward `ports` to `address`: one nft run where no port is in the way, else `replace`."""
        if not ports:
            return
        with self.locked():
            try:
                nft.apply(ruleset.add_forwards(self._prefix, address, ports.items()))
            except nft.NftError:
                self._replace(address, ports)

    def remove(self, address: str) -> list[int]:
        """End every forwarding to `address`, and that it is asleep; returns the host ports."""
        with self.locked():
            try:
                return self._replace(address, {}, ruleset.forget_sleep(self._prefix, address))
            except nft.NftError:  # the table may be gone, and with it all there was to end
                return self._replace(address, {})

    def put_to_sleep(self, address: str) -> list[int]:
        """End every forwarding to `address`; returns the host ports. What comes through connections
        of others is answered by a reset until something is forwarded to it again."""
        with self.locked():
            return self._replace(address, {}, ruleset.put_to_sleep(self._prefix, address))
