"""The key of an image: a name that changes exactly when the recipe or the agent changes."""
import hashlib
from pathlib import Path

from guest.image.distros import HERE, Distro

_SOURCES = ("guest/image", "guest/agent", "guest/agentserver")


def recipe_files() -> list[Path]:
    """Every file that decides what is in an image."""
    base = HERE.parent.parent
    found = (path for source in _SOURCES for path in (base / source).rglob("*"))
    return sorted(path for path in found if path.is_file() and "__pycache__" not in path.parts)


def image_key(distro: Distro, dns: tuple[str, ...]) -> str:
    """For example `ubuntu-22.04-1f2e3d4c5b6a`."""
    digest = hashlib.sha256(",".join((distro.name, *dns)).encode())
    base = HERE.parent.parent
    for path in recipe_files():
        digest.update(f"\0{path.relative_to(base)}\0{path.stat().st_mode & 0o111}\0".encode())
        digest.update(path.read_bytes())
    return f"{distro.name}-{digest.hexdigest()[:12]}"
