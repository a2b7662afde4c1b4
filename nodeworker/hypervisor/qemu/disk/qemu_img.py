"""Run qemu-img on files that a hostile QEMU process may have written.

It runs as a user of its own that owns nothing on this host, without capabilities and at the lowest
priority, and opens nothing but the descriptors it is given: files that were copied for it. So
whatever a header says, no file of root or of another sandbox is read or written.
"""
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nodeworker.disks import qcow2, sparse
from nodeworker.hypervisor.driver import DriverError

_LIMIT_S = 1800.0
# What `convert` writes for the object store.
COMPRESSED = ("-c", "-o", "compression_type=zstd", "-O", "qcow2")
# Above every slot's number: no virtual machine ever has this user.
_USER_OFFSET = 65535


class QemuImg:
    """qemu-img for the exports of one node; `uid_base` is the node's `vm_uid_base`."""

    def __init__(self, uid_base: int) -> None:
        self._uid = uid_base + _USER_OFFSET

    @contextmanager
    def copy(self, source: Path, target: Path, *, overlay: bool) -> Iterator[str]:
        """A copy of `source` for the block, by the name that qemu-img knows it by. The copy of an
        `overlay` is checked: the original may still be written to. Raises UnsafeLayer."""
        with source.open("rb") as original, self.new(target) as name:
            descriptor = _number(name)
            sparse.clone(original.fileno(), descriptor)
            if overlay:
                qcow2.check_overlay(descriptor)
            yield name

    @contextmanager
    def new(self, target: Path, size_bytes: int = 0) -> Iterator[str]:
        """A new sparse file of zeros for the block, by the name that qemu-img knows it by."""
        target.touch(mode=0o600, exist_ok=False)
        os.truncate(target, size_bytes)
        with self.lend(target) as name:
            yield name

    @contextmanager
    def lend(self, path: Path) -> Iterator[str]:
        """A file that only the caller needs, and need not be whole afterwards, for the block, by
        the name that qemu-img knows it by."""
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.fchown(descriptor, self._uid, self._uid)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.fchown(descriptor, 0, 0)
            os.close(descriptor)

    def measure(self, name: str) -> int:
        """How many bytes what a qcow2 file holds itself takes uncompressed. Raises DriverError."""
        told = self.run("measure", "--output=json", "-f", "qcow2", "-O", "qcow2", name)
        return int(json.loads(told)["required"])

    def run(self, *arguments: str, also: tuple[str, ...] = ()) -> str:
        """What `qemu-img arguments` prints; it inherits the descriptors that they name, and those
        of `also`, which headers name. Raises DriverError."""
        argv = ["nice", "-n", "19", "setpriv", f"--reuid={self._uid}", f"--regid={self._uid}",
                "--clear-groups", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all",
                "qemu-img", *arguments]
        descriptors = [
            _number(each) for each in (*arguments, *also) if each.startswith("/proc/self/fd/")
        ]
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=_LIMIT_S, cwd="/",
                                  stdin=subprocess.DEVNULL, pass_fds=descriptors,
                                  env={"PATH": os.defpath})
        except subprocess.TimeoutExpired as error:
            raise DriverError(f"qemu-img {arguments[0]} took longer than {_LIMIT_S} s") from error
        if done.returncode:
            raise DriverError(f"qemu-img {arguments[0]}: {done.stderr.strip()}")
        return done.stdout


def _number(name: str) -> int:
    return int(name.rpartition("/")[2])
