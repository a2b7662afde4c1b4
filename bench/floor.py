"""The floor of the VM figures: the same QEMU restore by a bare script, without locks, users,
cgroups, records or identity.

`create_to_exec`: copy the warm image's RAM, an empty overlay, start QEMU, load, continue, first
command answered. `wake_to_exec`: the same from RAM and state that are there already. Each returns
milliseconds; QEMU's end is not timed.
"""
import os
import shutil
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from config.settings import Settings
from guest.agent.protocol import AGENT_PORT
from guest.client.agent_client import AgentClient
from nodeworker.disks import qcow2, sparse
from nodeworker.disks.durable import read_json
from nodeworker.hypervisor.driver import Shape
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.process import argv, qmp
from nodeworker.hypervisor.qemu.process.monitor import Monitor
from nodeworker.network import namespaces
from nodeworker.network.addresses import GUEST_MAC, TAP_NAME

_SHAPE = Shape(1, 1024)
_OWNER = "bench-floor"


class Floor:
    """A context manager: one network slot and a directory, used again for every measurement."""

    def __init__(self, settings: Settings) -> None:
        self._host = Host(settings)
        self._warm_image = self._host.warm_image_dir(_SHAPE)
        machine, token = self._host.find_warm_image(_SHAPE), read_json(self._warm_image / "token")
        if machine is None or token is None:
            raise RuntimeError(
                "the floor needs the warm image of the size small: run `make up` first")
        self._machine, self._token = machine, str(token["token"])

    def __enter__(self) -> "Floor":
        self._slot = self._host.network.claim(_OWNER)
        self._directory = Path(tempfile.mkdtemp(prefix="floor-", dir=self._host.settings.node_dir))
        self._process: "subprocess.Popen[bytes] | None" = None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._end()
        self._host.network.release(_OWNER)
        shutil.rmtree(self._directory)

    def create_to_exec(self) -> float:
        """Milliseconds from nothing to the answer of the first command in a clone of the warm
        image."""
        self._end()
        for name in ("ram", "disk"):
            (self._directory / name).unlink(missing_ok=True)
        began = time.perf_counter()
        with (self._warm_image / "ram").open("rb") as source, (self._directory / "ram").open(
            "w+b"
        ) as target:
            sparse.clone(source.fileno(), target.fileno())
        qcow2.create_overlay(self._directory / "disk", self._machine.disk_bytes)
        self._restore_and_run(self._warm_image / "state")
        return (time.perf_counter() - began) * 1000

    def wake_to_exec(self) -> float:
        """Milliseconds from RAM and state on disk to the answer of the first command."""
        if self._process is None:
            self.create_to_exec()
        with Monitor(self._directory / "qmp") as monitor:
            monitor.run("stop")
            monitor.save(self._directory / "state")
        self._end()
        for name in ("disk", "ram", "state"):
            subprocess.run(["sync", str(self._directory / name)], check=True)
        began = time.perf_counter()
        self._restore_and_run(self._directory / "state")
        return (time.perf_counter() - began) * 1000

    def _restore_and_run(self, state: Path) -> None:
        with ExitStack() as stack:
            def opened(path: Path, mode: int) -> int:
                descriptor = os.open(path, mode)
                stack.callback(os.close, descriptor)
                return descriptor

            disks = [self._host.layers.path(reference) for reference in self._machine.chain]
            layers = [
                argv.DiskLayer("qcow2" if number else "raw", f"disk{number}",
                               opened(path, os.O_RDONLY)) for number, path in enumerate(disks)
            ]
            layers.append(
                argv.DiskLayer("qcow2", "top", opened(self._directory / "disk", os.O_RDWR)))
            tap = namespaces.in_namespace(self._slot.namespace,
                                          lambda: namespaces.open_tap(TAP_NAME))
            stack.callback(os.close, tap)
            listener = stack.enter_context(qmp.listen(self._directory / "qmp"))
            image, incoming = self._host.image, opened(state, os.O_RDONLY)
            ram, kernel = opened(self._directory / "ram", os.O_RDWR), opened(
                image.kernel, os.O_RDONLY)
            initrd = opened(image.initrd, os.O_RDONLY) if image.initrd else None
            command = argv.qemu_argv(
                argv.Hardware(
                    name=_OWNER, machine=image.machine, accelerator=self._host.tuple.accelerator,
                    cpu=image.cpu, shape=_SHAPE, ram_descriptor=ram, layers=tuple(layers),
                    tap_descriptor=tap, mac=GUEST_MAC, monitor_descriptor=listener.fileno(),
                    incoming=True,
                    kernel=argv.Kernel(kernel, self._host.kernel_command_line(image), initrd),
                )
            )
            descriptors = [
                ram, kernel, tap,
                listener.fileno(), incoming, *(layer.descriptor for layer in layers)
            ]
            self._process = subprocess.Popen(command,
                                             pass_fds=descriptors + ([initrd] if initrd else []))
        with Monitor(self._directory / "qmp") as monitor:
            monitor.load(str(incoming), announced=True)
            monitor.run("cont")
        AgentClient(self._slot.address, AGENT_PORT, self._token).exec(["true"])

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
