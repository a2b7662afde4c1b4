"""Host TCP ports forwarded to guests by the kernel: elements of one nftables map, found by looking,
never from memory."""
from collections.abc import Mapping

from nodeworker.network import nft, ruleset


class ForwardTable:
    """The forwarded ports of one node (`prefix` names its nftables table)."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def current(self) -> dict[int, tuple[str, int]]:
        """Host port -> (slot address, guest port), as the kernel has it."""
        found: dict[int, tuple[str, int]] = {}
        for item in nft.listing("map", "inet", self._prefix, ruleset.FORWARDS_MAP):
            for key, value in item.get("map", {}).get("elem", []):
                address, guest_port = value["concat"]
                found[int(key)] = (address, int(guest_port))
        return found

    def replace(self, address: str, ports: Mapping[int, int]) -> None:
        """Make `ports` (host port -> guest port) exactly what is forwarded to `address`; takes
        ports over from others."""
        present = self.current()
        wanted = {host: (address, guest) for host, guest in ports.items()}
        stale = [host for host, target in present.items()
                 if (target[0] == address or host in wanted) and wanted.get(host) != target]
        missing = [(host, guest)
                   for host, guest in ports.items()
                   if present.get(host) != (address, guest)]
        commands = ruleset.delete_forwards(self._prefix, stale) if stale else ""
        commands += ruleset.add_forwards(self._prefix, address, missing) if missing else ""
        if commands:
            nft.apply(commands)

    def add(self, address: str, ports: Mapping[int, int]) -> None:
        """Forward `ports` to `address`: one nft run where no port is in the way, else `replace`."""
        if not ports:
            return
        try:
            nft.apply(ruleset.add_forwards(self._prefix, address, ports.items()))
        except nft.NftError:
            self.replace(address, ports)

    def remove(self, address: str) -> None:
        """End every forwarding to `address`."""
        self.replace(address, {})
