"""What each preset is made of, and the keys of what is built: names that change exactly when its
recipe changes."""
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from guest.image.bun import BUN_VERSION
from guest.presets import SLUGS

HERE = Path(__file__).parent
LFG_DIR = HERE.parent / "lfg"
# Links for a package manager, and what only a debugger or another system would read.
_NEVER_NEEDED = ("**/.bin", "**/*.map", "**/prebuilds/darwin-*", "**/prebuilds/win32-*")


@dataclass(frozen=True)
class Preset:
    """One preset; `bins` are its commands, as paths below its own directory, `needs` the presets
    it cannot do without, `unneeded` glob patterns of what its packages bring for nothing."""

    slug: str
    bins: dict[str, str]
    needs_node: bool = False
    needs: tuple[str, ...] = ()
    unneeded: tuple[str, ...] = _NEVER_NEEDED
    recipes: Path = HERE

    @property
    def recipe(self) -> tuple[Path, Path]:
        """Its package.json, with exact versions, and the lock file with the hashes of everything
        that is fetched."""
        directory = self.recipes / self.slug
        return directory / "package.json", directory / "bun.lock"

    @property
    def version(self) -> str:
        """Its own version, or that of the one package it is."""
        package = json.loads(self.recipe[0].read_text())
        return str(package.get("version") or next(iter(package["dependencies"].values())))

    @property
    def key(self) -> str:
        """Name of its installed files."""
        installs = (HERE / "install.py", *self.recipe)
        return f"{self.slug}-{_digest((BUN_VERSION, *self.unneeded), installs)}"


# opencode is the one package of its program that every x86-64 CPU can run; the package of its name
# would choose among four of them in a script that runs when it is installed.
PRESETS = {
    preset.slug: preset
    for preset in (
        Preset("opencode", {"opencode": "node_modules/opencode-linux-x64-baseline/bin/opencode"}),
        Preset("pi", {"pi": "node_modules/@earendil-works/pi-coding-agent/dist/bundle/cli.js"},
               needs_node=True),
        Preset("codex", {"codex": "node_modules/@openai/codex/bin/codex.js"}, needs_node=True),
        Preset("claude", {"claude": "node_modules/@anthropic-ai/claude-code-linux-x64/claude"}),
        Preset("lfg", {}, needs=("opencode", "pi", "codex", "claude")),
    )
}
assert tuple(PRESETS) == SLUGS


def sources() -> list[Path]:
    """Every file that decides what is in the presets image, beside the image it is made from."""
    found = (path for top in (HERE, LFG_DIR) for path in top.rglob("*"))
    return sorted(path for path in found if path.is_file() and "__pycache__" not in path.parts)


def image_key(base: str, chosen: Iterable[str]) -> str:
    """For example `ubuntu-22.04-1f2e3d4c5b6a-p0a1b2c3d4e5f`, of the image `base` with all presets
    of `chosen`."""
    return f"{base}-p{_digest((base, *sorted(chosen)), sources())}"


def describe(preset: Preset, failure: str | None) -> dict[str, Any]:
    """The entry of a preset in presets.json; see `guest.presets`."""
    return {
        "state": "ready" if failure is None else "failed",
        "version": preset.version,
        "reason": failure or "",
        "bins": {name: f"{preset.slug}/{path}" for name, path in preset.bins.items()},
        "needsNode": preset.needs_node,
    }


def _digest(words: Iterable[str], files: Iterable[Path]) -> str:
    digest = hashlib.sha256("\0".join(words).encode())
    for path in files:
        executable = path.stat().st_mode & 0o111
        digest.update(f"\0{path.parent.name}/{path.name}\0{executable}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
