"""The pool of network slots of one node; who has which slot is the name of a file, and a claim is
one rename.

`<dir>/making/<n>` being built or half-built · `ready/<n>` free · `used/<n>.<owner>` taken ·
`dead/<n>` being removed. Files, unlike memory, are shared by all worker processes and survive their
death; `reclaim` clears what a death left. A slot that cannot be removed stays in `dead`: its number
is not used, nothing else is kept from its work, and the next `reclaim` tries again.
"""
import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nodeworker.network import addresses, links, namespaces
from nodeworker.network.addresses import Slot
from nodeworker.network.nft import NftError

_log = logging.getLogger(__name__)
# So many slots in a row cannot be built by chance: the host cannot build any.
_BUILD_TRIES = 3
# After a start the CPU belongs to the guest and its first caller, not to the next one's slot.
_CALM_S = 1.0


class NoSlot(Exception):
    """All slots of the slot network are in use."""


class SlotPool:
    """Network slots named `<prefix>-<n>` in `network`; up to `target` are kept ready ahead of
    need."""

    def __init__(self, directory: Path, prefix: str, network: str, target: int) -> None:
        self._directory = directory
        self._prefix = prefix
        self._network = network
        self._target = target
        self._group = addresses.device_group(prefix)
        for kind in ("making", "ready", "used", "dead"):
            (directory / kind).mkdir(parents=True, exist_ok=True, mode=0o700)

    def slot(self, number: int) -> Slot:
        """Names and addresses of slot `number`."""
        return addresses.slot(self._prefix, self._network, number)

    def claim(self, owner: str) -> Slot:
        """Take a slot for `owner`, a ready one if there is one; raises NoSlot."""
        for number in sorted(self.ready()):
            if self._move("ready", str(number), "used", f"{number}.{owner}"):
                if namespaces.namespace_exists(self.slot(number).namespace):
                    return self.slot(number)
                self._discard("used", f"{number}.{owner}")
        with self._making():
            number = self._build_one()
            self._move("making", str(number), "used", f"{number}.{owner}")
        return self.slot(number)

    def hand_over(self, owner: str, new_owner: str) -> None:
        """Make the slots of `owner` another's. None: no-op."""
        for name in self._names("used"):
            number, _, its_owner = name.partition(".")
            if its_owner == owner:
                self._move("used", name, "used", f"{number}.{new_owner}")

    def release(self, owner: str) -> None:
        """Remove every slot of `owner` from the host; a used slot is never given to another VM.
        None: no-op."""
        for name in self._names("used"):
            if name.partition(".")[2] == owner:
                self._discard("used", name)

    def owners(self) -> dict[str, int]:
        """Owner -> slot number of every slot in use."""
        return {name.partition(".")[2]: int(name.partition(".")[0]) for name in self._names("used")}

    def ready(self) -> set[int]:
        """Numbers of the slots that wait to be claimed."""
        return self._numbers("ready")

    def fill(self) -> None:
        """Build slots until `target` are ready, or all numbers are in use."""
        with suppress(NoSlot):
            while len(self._names("ready")) < self._target:
                with self._making():
                    number = self._build_one()
                    self._move("making", str(number), "ready", str(number))

    def fill_in_background(self) -> None:
        """`fill` in a thread of its own; failures show when a claim has to build a slot itself."""
        if len(self._names("ready")) < self._target:
            threading.Thread(target=self._fill_quietly, name="slot-fill", daemon=True).start()

    def reclaim(self, is_live: Callable[[str], bool]) -> None:
        """Remove half-built slots, slots whose owner is not live, and namespaces of ours that no
        file knows."""
        with self._making():
            for kind in ("making", "dead"):
                for name in self._names(kind):
                    self._discard(kind, name)
            for name in self._names("ready"):
                if not namespaces.namespace_exists(self.slot(int(name)).namespace):
                    self._discard("ready", name)
            for name in self._names("used"):
                if not is_live(name.partition(".")[2]):
                    self._discard("used", name)
            known = {self.slot(number).namespace for number in self._all_numbers()}
            for namespace in namespaces.list_namespaces(self._prefix):
                if namespace not in known:
                    self._delete_unknown(namespace)

    @staticmethod
    def _delete_unknown(namespace: str) -> None:
        try:
            namespaces.delete_namespace(namespace)
        except OSError as error:
            _log.error("namespace %s, which no slot has, could not be removed: %s", namespace,
                       error)

    def _fill_quietly(self) -> None:
        time.sleep(_CALM_S)
        try:
            self.fill()
        except (OSError, NftError):
            return

    @contextmanager
    def _making(self) -> Iterator[None]:
        """Only one process builds slots or hands out numbers at a time."""
        descriptor = os.open(self._directory / "making.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC,
                             0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _build_one(self) -> int:
        """Build a slot under the next number that can be built; raises what the last of some tries
        in a row raised."""
        for _ in range(_BUILD_TRIES - 1):
            number = self._next_number()
            try:
                return self._build(number)
            except (OSError, NftError) as error:
                _log.error("network slot %d could not be made, trying the next: %s", number, error)
        return self._build(self._next_number())

    def _build(self, number: int) -> int:
        slot = self.slot(number)
        (self._directory / "making" / str(number)).touch()
        try:
            links.remove_slot(slot)
            links.build_slot(slot, self._group)
        except BaseException:
            self._discard("making", str(number))
            raise
        return number

    def _next_number(self) -> int:
        """Numbers go round, so that one is not used again while the kernel still clears its old
        interfaces."""
        marker = self._directory / "last"
        last = int(marker.read_text() or -1) if marker.exists() else -1
        taken, capacity = self._all_numbers(), addresses.slot_capacity(self._network)
        for step in range(1, capacity + 1):
            number = (last + step) % capacity
            if number not in taken:
                marker.write_text(str(number))
                return number
        raise NoSlot(f"all {capacity} slots of {self._network} are in use")

    def _discard(self, kind: str, name: str) -> None:
        number = name.partition(".")[0]
        if not self._move(kind, name, "dead", number):
            return
        try:
            links.remove_slot(self.slot(int(number)))
        except OSError as error:
            _log.error("network slot %s is set aside, it could not be removed: %s", number, error)
            return
        (self._directory / "dead" / number).unlink(missing_ok=True)

    def _move(self, kind: str, name: str, new_kind: str, new_name: str) -> bool:
        try:
            os.rename(self._directory / kind / name, self._directory / new_kind / new_name)
        except FileNotFoundError:
            return False
        return True

    def _names(self, kind: str) -> list[str]:
        return os.listdir(self._directory / kind)

    def _numbers(self, kind: str) -> set[int]:
        return {int(name.partition(".")[0]) for name in self._names(kind)}

    def _all_numbers(self) -> set[int]:
        return set().union(*(self._numbers(kind) for kind in ("making", "ready", "used", "dead")))
