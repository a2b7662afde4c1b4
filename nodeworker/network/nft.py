"""Run nft: one transaction per call, in the current network namespace."""
import json
import subprocess
from typing import Any

_TIMEOUT_S = 20


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
