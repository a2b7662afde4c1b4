"""The agent presets of simulated hosts and guests: all five are there, or what a test has written
as presets.json into the node's directory (see `guest.presets`).

Beside what a real one holds, `"building": TEXT` says that none is built yet, and the entry of a
preset may have `"breaks": TEXT`, why its verification fails in the guest, `"takes": SECONDS`, and
that of `lfg` `"mute": true`: its web UI does not start.
"""
import json
import threading
import time
from pathlib import Path
from typing import Any

from guest.presets import GUEST_DIR, SLUGS
from guest.presets.activate import LOCK, STATE_DIR
from nodeworker.disks.durable import read_json
from nodeworker.hypervisor.host_facts import PresetsFacts
from nodeworker.hypervisor.presets_record import facts_of, none_chosen, nothing_built
from nodeworker.hypervisor.simulated.guest import Guest

RECORD = f"{GUEST_DIR}/presets.json"
_READY = {"state": "ready", "version": "1.0.0", "reason": ""}
_ALL = {"presets": dict.fromkeys(SLUGS, _READY)}
_WEB_UI_PORT = 8766


class HostPresets:
    """What a host has; `chosen` is SVC_PRESETS, of which only counts whether it is empty."""

    def __init__(self, node_dir: Path, chosen: tuple[str, ...]) -> None:
        self._file, self._chosen = node_dir / "presets.json", chosen

    def record(self) -> dict[str, Any]:
        """presets.json of the image."""
        return read_json(self._file) or _ALL

    def facts(self) -> PresetsFacts:
        """See `Driver.presets_facts`."""
        if not self._chosen:
            return none_chosen()
        record = self.record()
        if "building" in record:
            return nothing_built(record["building"])
        return facts_of(record["presets"])


def activate(guest: Guest, slug: str) -> int:
    """What `guest/presets/activate.py` leaves of itself in a guest; returns its exit code."""
    if RECORD not in guest.files:
        return 2
    with guest.locks.setdefault(LOCK, threading.Lock()):
        return _activate_alone(guest, slug)


def _activate_alone(guest: Guest, slug: str) -> int:
    entry = json.loads(guest.files[RECORD])["presets"][slug]
    time.sleep(entry.get("takes", 0))
    error = entry["reason"] if entry["state"] == "failed" else entry.get("breaks", "")
    log = f"/var/log/svc/preset-{slug}.log"
    # A second line for each time it ran.
    before = guest.files.get(log, b"")
    guest.files[log] = before + (error or f"{slug} {entry['version']} is ready").encode() + b"\n"
    outcome = {"version": "" if error else entry["version"], "error": error}
    guest.files[f"{STATE_DIR}/{slug}.json"] = json.dumps(outcome).encode()
    return 1 if error else 0


def start_web_ui(guest: Guest) -> int:
    """The start command of `lfg`; returns its exit code."""
    if RECORD not in guest.files or "mute" in json.loads(guest.files[RECORD])["presets"]["lfg"]:
        return 1
    guest.serve(_WEB_UI_PORT)
    return 0
