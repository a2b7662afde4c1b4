"""Reads files of KEY=VALUE lines: a stack's settings and what `make up` tells its users."""
from pathlib import Path


def read_env(path: Path) -> dict[str, str]:
    """The values by name; comments, blank lines and a missing file are nothing."""
    if not path.is_file():
        return {}
    pairs = (line.split("=", 1)
             for line in path.read_text().splitlines()
             if "=" in line and not line.startswith("#"))
    return {name.strip(): value.strip() for name, value in pairs}
