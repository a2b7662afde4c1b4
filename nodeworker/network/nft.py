"""Run nft: one transaction per call, in the current network namespace."""
import json
import socket
import struct
import subprocess
from typing import Any

_TIMEOUT_S = 20
# From linux/netlink.h, linux/netfilter/nfnetlink.h and linux/netfilter/nf_tables.h: a question for
# the generation of the tables, and the answer, whose first attribute is its number.
_NETLINK_NETFILTER, _REQUEST, _GET_GENERATION, _NEW_GENERATION = 12, 1, 0xA10, 0xA0F
_QUESTION = struct.Struct("=IHHII4x")
_ANSWER = struct.Struct("=4xH14x")
_NUMBER = struct.Struct("!4xI")


class NftError(Exception):
    """nftables refused a transaction; nothing of it was applied."""


def apply(commands: str) -> None:
    """Apply all `commands` or none; raises NftError with nft's own words."""
    done = subprocess.run(["nft", "-f", "-"], input=commands, capture_output=True, text=True,
                          timeout=_TIMEOUT_S)
    if done.returncode != 0:
        raise NftError(done.stderr.strip() or f"nft ended with {done.returncode}")


def rules(table: str) -> str:
    """Chains and rules of table `inet <table>` as nft prints them, without counters and the
    elements of sets and maps; empty if there is no such table."""
    done = subprocess.run(["nft", "--stateless", "--terse", "list", "table", "inet", table],
                          capture_output=True, text=True, timeout=_TIMEOUT_S)
    return done.stdout if done.returncode == 0 else ""


def generation() -> int:
    """The number of the last change to any table; every transaction makes the next one. It takes
    13 us to read, and 3.5 ms to list a table with nft (decision 52). Raises OSError."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER) as kernel:
        kernel.settimeout(_TIMEOUT_S)
        kernel.sendto(_QUESTION.pack(_QUESTION.size, _GET_GENERATION, _REQUEST, 1, 0), (0, 0))
        answer = kernel.recv(4096)
    if _ANSWER.unpack_from(answer)[0] != _NEW_GENERATION:
        raise OSError("the kernel does not tell the generation of its packet filter")
    return int(_NUMBER.unpack_from(answer, _ANSWER.size)[0])


def listing(*what: str) -> list[dict[str, Any]]:
    """`nft -j list <what>` as objects; an empty list if there is no such thing. Raises NftError if
    it cannot be told, as while others change their tables all the time."""
    done = subprocess.run(["nft", "-j", "list", *what], capture_output=True, text=True,
                          timeout=_TIMEOUT_S)
    if done.returncode != 0:
        if "No such file or directory" in done.stderr:
            return []
        raise NftError(done.stderr.strip() or f"nft ended with {done.returncode}")
    return list(json.loads(done.stdout)["nftables"])
