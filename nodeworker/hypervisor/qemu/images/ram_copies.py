"""Copies of a template's RAM made ahead of need, so that a create takes one by a rename instead of
copying 90 MB.

A spare is a finished copy under its final name; half-made ones have another. One process at a time
makes them.
"""
import fcntl
import os
import secrets
import shutil
import threading
import time
from pathlib import Path

from nodeworker.disks import sparse

_HALF_MADE = ".half"
# After a create the CPU belongs to the new guest and its first caller.
_CALM_S = 1.5


class SparePool:
    """Up to `target` spares of each template that creates have used, under
    `directory/<template>/`."""

    def __init__(self, directory: Path, target: int) -> None:
        self._directory = directory
        self._target = target
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)

    def take(self, template: Path, ram: Path) -> bool:
        """Put a spare of this template in place as `ram`; False if there is none."""
        for spare in self._ready(template):
            try:
                os.rename(spare, ram)
                return True
            except FileNotFoundError:
                continue  # another create was quicker
        return False

    def refill_in_background(self, template: Path) -> None:
        """Make spares of this template up to the target, a moment later and in a thread of its
        own."""
        if len(self._ready(template)) < self._target:
            threading.Thread(target=self._refill, args=(template, ), name="spares",
                             daemon=True).start()

    def reclaim(self, templates: set[str]) -> None:
        """Remove half-made spares, and those of templates that are no more."""
        with (self._directory / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for folder in [path for path in self._directory.iterdir() if path.is_dir()]:
                if folder.name not in templates:
                    shutil.rmtree(folder, ignore_errors=True)
                for half in folder.glob(f"*{_HALF_MADE}"):
                    half.unlink(missing_ok=True)

    def _refill(self, template: Path) -> None:
        time.sleep(_CALM_S)
        try:
            with (self._directory / "lock").open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                while len(self._ready(template)) < self._target:
                    self._make(template)
        except OSError:
            return  # a full disk or a removed directory: creates copy for themselves

    def _make(self, template: Path) -> None:
        folder = self._directory / template.name
        folder.mkdir(exist_ok=True, mode=0o700)
        half = folder / f"{secrets.token_hex(8)}{_HALF_MADE}"
        try:
            with (template / "ram").open("rb") as source, half.open("w+b") as copy:
                os.fchmod(copy.fileno(), 0o600)
                sparse.clone(source.fileno(), copy.fileno())
            os.rename(half, half.with_suffix(""))
        except BaseException:
            half.unlink(missing_ok=True)
            raise

    def _ready(self, template: Path) -> list[Path]:
        return [
            path for path in (self._directory / template.name).glob("*")
            if path.suffix != _HALF_MADE
        ]
