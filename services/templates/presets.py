"""The agent presets: what each serves, where its logs are, and what a sandbox of one is launched
with (contract, Create rule 3).

A preset is put into a guest image when that is built, and made ready in a sandbox when it boots
(`nodeworker/handlers/presets.py`). What a sandbox shows of its preset is told from its row and this
table.
"""
from collections.abc import Mapping
from dataclasses import dataclass

from models.sandboxes import Sandbox
from models.snapshots import Snapshot
from models.states import PresetState, SnapshotKind


@dataclass(frozen=True)
class Service:
    """The web UI of a preset: the service of its sandboxes, ready once `port` takes connections."""

    port: int
    start_command: str
    log_path: str


@dataclass(frozen=True)
class Preset:
    """A preset; without a `service` it is used in a terminal only."""

    slug: str
    service: Service | None = None

    @property
    def install_log_path(self) -> str:
        """Where the guest keeps what was done to make it ready."""
        return f"/var/log/svc/preset-{self.slug}.log"


_LFG = Service(8766, "/opt/svc/presets/lfg/start", "/var/log/svc/lfg.log")
PRESETS: Mapping[str, Preset] = {
    preset.slug: preset
    for preset in (Preset("opencode"), Preset("pi"), Preset("codex"), Preset("claude"),
                   Preset("lfg", _LFG))
}


@dataclass(frozen=True)
class PresetOfSandbox:
    """The preset of a sandbox, as its row has it. Without a `state` it is to be made ready when the
    sandbox boots."""

    preset: Preset
    state: PresetState | None = None
    error: str | None = None
    serves: bool = True


def of_copy(source: Sandbox, taken: Snapshot) -> PresetOfSandbox | None:
    """The preset of a sandbox made of `taken`: its source's. A machine is copied with it, a project
    directory is unpacked into a new one."""
    if source.preset is None:
        return None
    preset = PRESETS[source.preset]
    if taken.kind == SnapshotKind.FILES_ONLY:
        return PresetOfSandbox(preset)
    state = None if source.preset_state is None else PresetState(source.preset_state)
    return PresetOfSandbox(preset, state, source.preset_error, serves=serves(source))


def serves(sandbox: Sandbox) -> bool:
    """True if the web UI of its preset is the sandbox's service."""
    service = PRESETS[sandbox.preset].service if sandbox.preset else None
    return service is not None and sandbox.start_command == service.start_command
