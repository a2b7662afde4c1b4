"""Shares of this host, so that stacks side by side never overlap: names, addresses, ports and user
ids.

Two stacks on one host (two checkouts, or `make test` beside `make up`) must differ in namespace and
table names, in slot addresses, in forwarded ports and in user ids of their VMs. All of these follow
from one number, the share. A claim is a file naming the stack's data directory, made exclusively;
it lapses when that directory is gone, and one of a private stack when whoever made that was killed
and nothing of it lives. A reboot ends all claims; a development stack remembers its share, and
claims no other.
"""
import fcntl
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bin.console import Advice
from bin.stack import leftovers

CLAIMS = Path("/run/svc-stacks")
SHARES = 13
# Second part of each share's prefix; `c` is missing because share 0 is `svc`.
_MARKS = "0123456789abd"
# Ports of servers in each share.
_SERVERS = 16
_PATIENCE_S, _PAUSE_S = 240.0, 0.5


@dataclass(frozen=True)
class Share:
    """The part of the host that one stack owns."""

    number: int

    def __str__(self) -> str:
        return str(self.number)

    @property
    def net_prefix(self) -> str:
        """Never the beginning of another share's prefix: clean-up goes by prefix."""
        return "svc" if self.number == 0 else f"sv{_MARKS[self.number]}"

    @property
    def slot_network(self) -> str:
        return f"10.{201 + self.number}.0.0/16"

    @property
    def host_ports(self) -> tuple[int, int]:
        """Below the kernel's ephemeral range (32768), so that no outgoing connection sits on
        one."""
        if self.number == 0:
            return (20000, 23499)
        first = 25000 + 640 * (self.number - 1)
        return (first, first + 319)

    @property
    def agent_ports(self) -> tuple[int, int]:
        """Right above the host ports, one for each sandbox."""
        return (23500, 24999) if self.number == 0 else (self.host_ports[1] + 1,
                                                        self.host_ports[1] + 320)

    def server_port(self, place: int) -> int:
        """For the server of that place, from 0: below the ephemeral range too, so that nothing sits
        on it between its choice and its use."""
        assert 0 <= place < _SERVERS
        return 17000 + _SERVERS * self.number + place

    @property
    def vm_uid_base(self) -> int:
        return 900_000 + 100_000 * self.number


def claim_share(data_dir: Path, *, private: bool = False, known_prefix: str = "") -> Share:
    """The share this data directory holds already, or else an unclaimed one: that of
    `known_prefix` if it has had one, or the lowest. For a `private` stack it is the highest, so
    that it hardly ever takes what a development stack had before a reboot; and it is waited for, as
    most of the others are private, too, and gone soon."""
    CLAIMS.mkdir(mode=0o755, parents=True, exist_ok=True)
    if share := share_of(data_dir):
        return share
    known = [each for each in range(SHARES) if Share(each).net_prefix == known_prefix]
    wanted = known or (range(SHARES - 1, 0, -1) if private else range(SHARES))
    deadline = time.monotonic() + (_PATIENCE_S if private else 0)
    while True:
        if (number := _claim_one(wanted, data_dir)) is not None:
            return Share(number)
        if time.monotonic() > deadline:
            break
        time.sleep(_PAUSE_S)
    if known:
        raise Advice(
            f"{_owner(known[0])} has claimed the part of this host that this stack had (prefix"
            f" {known_prefix}); with another one the ports of its sandboxes would change. A test's"
            " stack gives it up at its end, that of a checkout with `make clean` there; or `make"
            " clean` here, which removes all sandboxes, and begin anew."
        )
    owners = "\n".join(f"  {_owner(number)}" for number in range(SHARES))
    raise Advice(
        f"{SHARES} stacks have claimed this host already; stop one (`make down` and `make clean` in"
        f" its checkout). Those of\n{owners}"
    )


def share_of(data_dir: Path) -> Share | None:
    """The share that this data directory holds."""
    held = [Share(number) for number in range(SHARES) if _owner(number) == data_dir]
    return held[0] if held else None


def release_share(data_dir: Path) -> None:
    """Give up the claim of `data_dir`, if it has one."""
    if share := share_of(data_dir):
        (CLAIMS / str(share)).unlink(missing_ok=True)


def _owner(number: int) -> Path | None:
    try:
        return Path((CLAIMS / str(number)).read_text())
    except FileNotFoundError:
        return None


def _claim_one(numbers: Iterable[int], data_dir: Path) -> int | None:
    # One at a time: two that find the same claim lapsed would each remove what stands there.
    with (CLAIMS / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return next((number for number in numbers if _try_claim(number, data_dir)), None)


def _try_claim(number: int, data_dir: Path) -> bool:
    """Claims are made whole by link(2), which fails if the name exists: no reader sees an empty
    one."""
    claim, draft = CLAIMS / str(number), CLAIMS / f".{os.getpid()}"
    owner = _owner(number)
    if owner is not None and _lapsed(Share(number), owner):
        claim.unlink(missing_ok=True)
    draft.write_text(str(data_dir))
    try:
        os.link(draft, claim)
    except FileExistsError:
        return False
    finally:
        draft.unlink(missing_ok=True)
    return True


def _lapsed(share: Share, owner: Path) -> bool:
    """A development stack, whose directory is called `var`, keeps its share while it is down."""
    if owner.name == "var" or not owner.is_dir():
        return not owner.is_dir()
    return not (leftovers.owner_lives(owner) or leftovers.processes_of(owner)
                or leftovers.vms_named(share.net_prefix))
