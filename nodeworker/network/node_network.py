"""The network of one node as the driver sees it: slots, forwarded ports and the policy table behind
one object.

One process of a node keeps the policy (`reload`) and restores the ports that were lost with it. Any
other that finds it gone loads it as well, so that no guest is without it, and says by removing
`policy-as-loaded` that ports may be missing: the others' were in the table that is gone.
"""
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from nodeworker.disks.durable import write_atomic
from nodeworker.network import ip_forwarding, links, nft, ruleset
from nodeworker.network.addresses import Slot
from nodeworker.network.end_connections import end_connections
from nodeworker.network.port_forwards import ForwardTable
from nodeworker.network.ruleset import NodePorts
from nodeworker.network.slots import SlotPool

_log = logging.getLogger(__name__)
# To replace rules takes 15 ms, most of which the kernel waits.
_RENEWED_AT_ONCE = 8


class NodeNetwork:
    """Network of the node with `prefix`; `directory` holds its records, `offered` are the host
    ports that lead to guests."""

    def __init__(self, directory: Path, *, prefix: str, slot_network: str, offered: NodePorts,
                 pool_target: int) -> None:
        self._memory = directory / "forwarding-was-off"
        self._loaded = directory / "policy-as-loaded"
        self._slot_network = slot_network
        self._rules = ruleset.node_ruleset(prefix, slot_network, offered)
        self._prefix = prefix
        self._offered = offered
        self._table_ready = False
        # The generation of the host's tables, and what was loaded then, when they last agreed.
        self._intact_at: tuple[int, bytes] | None = None
        # Owners of slots whose ports may have been lost before `reload`; who restores them takes
        # them out. Known to the process that keeps the policy, whose start loads it again.
        self.may_lack_ports: set[str] = set()
        self.slots = SlotPool(directory, prefix, slot_network, pool_target)
        self.forwards = ForwardTable(prefix, directory)

    def prepare(self) -> None:
        """See, once per process, that the policy is loaded and forwarding is on; idempotent."""
        if not self._table_ready and not self.is_intact():
            self._load_lost()
        self._table_ready = True

    def reload(self) -> None:
        """Load the policy table again (forwarded ports in it stay) and switch forwarding on. For
        the one process that then restores the ports of all that `may_lack_ports`."""
        self._loaded.unlink(missing_ok=True)
        self._load()
        self.may_lack_ports = set(self.slots.owners())
        # Last: what fails before it is done again at the next look.
        write_atomic(self._loaded, nft.rules(self._prefix).encode(), durable=False)

    def _load_lost(self) -> None:
        """Load a policy that is gone or incomplete; it is not intact before the next `reload`."""
        self._loaded.unlink(missing_ok=True)
        self._load()

    def _load(self) -> None:
        nft.apply(self._rules)
        links.refuse(self._slot_network)
        ip_forwarding.enable(self._memory)
        self._table_ready = True

    def is_intact(self) -> bool:
        """True if the packet policy is what `reload` loaded last, nobody has had to load it since,
        and the host forwards. The policy is listed only if some table has changed since it was: a
        list is a process more."""
        try:
            loaded = self._loaded.read_bytes()
        except FileNotFoundError:
            return False
        if not ip_forwarding.is_on():
            return False
        present = nft.generation(), loaded  # first, so that a later change is seen the next time
        if present == self._intact_at:
            return True
        intact = loaded == nft.rules(self._prefix).encode() != b""
        self._intact_at = present if intact else None
        return intact

    def renew_slots(self) -> None:
        """Load the rules inside every slot again: those of machines that ran on over an upgrade,
        and those made ahead, are an earlier version's. One where it fails keeps what it has."""
        numbers = self.slots.ready() | set(self.slots.owners().values())
        with ThreadPoolExecutor(max_workers=_RENEWED_AT_ONCE) as workers:
            list(workers.map(self._renew_slot, numbers))

    def _renew_slot(self, number: int) -> None:
        try:
            links.renew_rules(self.slots.slot(number))
        except (OSError, nft.NftError) as error:
            _log.error("the packet rules inside of slot %d stay as they are: %s", number, error)

    def claim(self, owner: str) -> Slot:
        """A slot for `owner`; one it already has is removed first. Raises NoSlot, OSError,
        NftError."""
        self.prepare()
        self.slots.release(owner)
        return self.slots.claim(owner)

    def forward(self, slot: Slot, ports: dict[int, int], *, fresh: bool) -> None:
        """Forward exactly `ports` (host -> guest) to the slot; `fresh` says that it had none. A
        lost table is loaded again."""
        change = self.forwards.add if fresh else self.forwards.replace
        try:
            change(slot.address, ports)
        except nft.NftError:
            self._load_if_lost()
            self.forwards.replace(slot.address, ports)

    def _load_if_lost(self) -> None:
        if not self.is_intact():  # else it was busy: others change tables of theirs
            _log.warning("loading the packet policy again: the table was gone or incomplete")
            self._load_lost()

    def remove_stale_forwards(self, address: str) -> None:
        """End what is forwarded to a slot address, unless somebody has claimed the slot since: a
        claim comes before its ports are forwarded, and both wait for the same lock."""
        with self.forwards.locked():
            owned = {self.slots.slot(number).address for number in self.slots.owners().values()}
            if address not in owned:
                self._remove_forwards(address)

    def cut_off(self, slot: Slot) -> None:
        """From now on the guest there reaches nobody; who reached it still does."""
        links.let_through(slot, False)

    def let_out(self, slot: Slot) -> None:
        """Undo `cut_off`."""
        links.let_through(slot, True)

    def close(self, owner: str) -> None:
        """End the owner's forwarded ports and the connections to them: this host's at once, those
        of others as soon as they send something. It keeps its slot. A lost table is loaded
        again."""
        address = self._find_address(owner)
        if address is None:
            return
        try:
            ended = self.forwards.put_to_sleep(address)
        except nft.NftError:
            self._load_if_lost()
            ended = self.forwards.put_to_sleep(address)
        self._end_connections(ended)

    def release(self, owner: str) -> None:
        """End the owner's forwarded ports and this host's connections to them, then remove its
        slot."""
        address = self._find_address(owner)
        if address is not None:
            self._remove_forwards(address)
        self.slots.release(owner)

    def _find_address(self, owner: str) -> str | None:
        number = self.slots.owners().get(owner)
        return None if number is None else self.slots.slot(number).address

    def _remove_forwards(self, address: str) -> None:
        self._end_connections(self.forwards.remove(address))

    def _end_connections(self, ended: list[int]) -> None:
        lowest, highest = self._offered.tenants
        end_connections(self._offered.address,
                        [port for port in ended if lowest <= port <= highest])
