"""A place to try one driver: makes sandboxes with ports and tokens of their own, talks to them,
removes them."""
import itertools
import os
import signal
import time
from dataclasses import dataclass, field, replace

from config.settings import Settings, load
from guest.client.agent_client import AgentClient
from nodeworker.disks import directory_id
from nodeworker.hypervisor.driver import Driver, Forward, MachineSpec, Shape, VmState
from nodeworker.hypervisor.factory import make_driver
from nodeworker.hypervisor.qemu.rundir import RunDir
from nodeworker.hypervisor.simulated.control import SimulatorControl
from tests.host.driver_worker import patient, run_worker

SHAPE = Shape(1, 1024)
CHILD_LIMIT_S = 300


@dataclass
class Lab:
    """One driver on one private node directory; `environ` are the SVC_* variables it was made
    from."""

    environ: dict[str, str]
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.settings: Settings = load(self.environ)
        if directory_id.find(self.settings.node_dir) is None:  # as a node does at its first start
            directory_id.make(self.settings.node_dir)
        self.driver: Driver = patient(make_driver(self.settings))

    @property
    def is_real(self) -> bool:
        return self.settings.driver == "qemu"

    def spec(self, snapshot_id=None, **changes) -> MachineSpec:
        """A launch with an id, a token and host ports nobody else has: those of a sandbox that is
        long gone come again."""
        number = next(self.numbers)
        lowest, highest = self.settings.host_ports
        turn = number % ((highest - lowest + 1) // 2)
        agent_port, port = self.settings.agent_ports[0] + turn, lowest + 2 * turn
        spec = MachineSpec(f"box{number}", SHAPE, f"token-of-box-{number}-0123456789", agent_port,
                           (Forward(port, 8000), ), snapshot_id, {"NUMBER": str(number)})
        return replace(spec, **changes)

    def create(self, snapshot_id=None) -> MachineSpec:
        """A new running sandbox."""
        spec = self.spec(snapshot_id)
        self.driver.create(spec)
        return spec

    def agent(self, spec: MachineSpec) -> AgentClient:
        """The guest's agent by the road the API takes: the host port."""
        return AgentClient(self.settings.node_address, spec.agent_port, spec.agent_token,
                           connect_timeout_s=30.0)

    def shell(self, spec: MachineSpec, line: str) -> str:
        """Output of a line of bash that must succeed."""
        result = self.agent(spec).exec(shell=line)
        assert result.exit_code == 0, result
        return result.stdout.decode()

    def in_child(self, operation: str, *arguments, fault_file=None) -> int:
        """Return code of a worker process of its own that carries out one driver call (negative:
        the signal it died of)."""
        fault = {"SVC_FAULT_FILE": str(fault_file)} if fault_file else {}
        return run_worker({**self.environ, **fault}, CHILD_LIMIT_S, operation, *arguments)

    def crash_at(self, point: str, tmp_path, operation: str, *arguments) -> None:
        """Carry out a driver call in a worker that is killed at a fault point."""
        path = tmp_path / "fault"
        path.write_text(f"{point} kill")
        code = self.in_child(operation, *arguments, fault_file=path)
        assert code == -signal.SIGKILL, f"{operation} never came to {point} (ended with {code})"
        assert not path.exists()

    def kill_machine(self, sandbox_id: str) -> None:
        """End the process of a running VM as a crash would."""
        rundir = RunDir(self.settings.node_dir / "sandboxes" / sandbox_id)
        if self.is_real:
            record = rundir.find_record()
            assert record and record.pid
            os.kill(record.pid, signal.SIGKILL)
        else:
            os.kill(SimulatorControl(self.settings.node_dir / "simulator").pid(), signal.SIGKILL)
        deadline = time.monotonic() + 10
        while self.driver.inspect(sandbox_id) is VmState.RUNNING or rundir.is_alive():
            assert time.monotonic() < deadline, "the killed machine does not end"
            time.sleep(0.01)

    def clean(self) -> None:
        """Remove every sandbox and snapshot, and the layers that only the collection frees: those
        that were flattened away while a snapshot had them."""
        for sandbox_id in self.driver.list_sandboxes():
            self.driver.destroy(sandbox_id)
        for snapshot_id in self.driver.list_snapshots():
            self.driver.delete_snapshot(snapshot_id)
        self.driver.collect_garbage()
