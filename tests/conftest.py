"""Fixtures made of real parts: private Postgres, Redis and S3, and whole stacks of every process of
the Procfile.

`servers` (Postgres, Redis, S3), `sim_stack` (all processes, simulated hypervisor) and `vm_stack`
(all processes, QEMU) start on first use, live for the session in directories of their own under
var/, and run beside `make up`. Whatever ends the session, Ctrl-C and SIGTERM included, ends them;
what kill -9 left behind is removed by the next session.
"""
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from bin.stack import running as stacks
from bin.stack.site import ROOT
from bin.stack.supervision import supervise
from bin.test import WITH_VMS
from guest.presets import SLUGS
from models.database import connect, database
from models.users import User
from services.operations import row_changes
from tests.clients.deploys import Deploys
from tests.fakes.webhook_receiver import Receiver
from tests.stack.database import Databases, query
from tests.stack.edge import Edge, make_edge
from tests.stack.fault_points import FaultPoint, fault_point
from tests.stack.personas import Persona
from tests.stack.times import BESIDE_GUESTS, QUICK
from tests.stack.waiting import until

ORDER = ("unit", "functional", "contract", "vm", "browser", "chaos")
# In parallel the rooms with long files go first: at the end no worker is to wait for another.
PARALLEL_ORDER = ("browser", "chaos", "vm", "contract", "functional", "unit")
EVIDENCE = ROOT / "var" / "evidence"


def pytest_configure(config: pytest.Config) -> None:
    """Make SIGTERM and SIGHUP end the session as Ctrl-C does, so that fixtures are torn down."""
    def interrupt(signum: int, frame: object) -> None:
        raise KeyboardInterrupt
    for signum in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(signum) is not signal.SIG_IGN:  # nohup
            signal.signal(signum, interrupt)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Quick tests first: unit, functional, contract, vm, chaos; what needs the stack of VMs last,
    which would stand by meanwhile. In parallel, long ones first."""
    order = PARALLEL_ORDER if _is_worker(config) else ORDER

    def room(item: pytest.Item) -> str:
        return item.path.relative_to(Path(__file__).parent).parts[0]

    def on_vm_stack(item: pytest.Item) -> bool:
        return "vm_stack" in getattr(item, "fixturenames", ())

    items.sort(key=lambda item: (
        on_vm_stack(item), order.index(room(item)) if room(item) in order else len(order)))
    for item in items:
        if room(item) in ("vm", "chaos"):
            item.add_marker(room(item))
        if on_vm_stack(item):
            item.add_marker("vm")
            if room(item) not in WITH_VMS and not item.get_closest_marker("alone"):
                raise pytest.UsageError(f"{item.nodeid} boots VMs in a room where none are run")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Before any worker process of pytest-xdist makes a stack, remove what an earlier, killed
    session left."""
    if session.config.getoption("numprocesses", None) and not _is_worker(session.config):
        stacks.remove_abandoned()


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """A failed test of a stack shows what its processes said last; their whole logs go to
    var/evidence."""
    report = yield
    if report.failed:
        for name in ("servers", "sim_stack", "vm_stack"):
            stack = getattr(item, "funcargs", {}).get(name)
            if isinstance(stack, stacks.Stack) and stack.site.data_dir.is_dir():
                for process in (*stacks.SERVERS, *stack.processes):
                    report.sections.append((f"{name}: {process}", stack.logs(process, 15)))
                _keep_logs(stack)
    return report


def _keep_logs(stack: stacks.Stack) -> None:
    logs = stack.site.data_dir / "log"
    if logs.is_dir():
        shutil.copytree(logs, EVIDENCE / stack.site.data_dir.name, dirs_exist_ok=True)


@pytest.fixture(scope="session")
def clean_host(request: pytest.FixtureRequest) -> None:
    """Nothing that an earlier, killed session left is on the host."""
    if not _is_worker(request.config):
        stacks.remove_abandoned()


@pytest.fixture(scope="session")
def servers(clean_host: None) -> Iterator[stacks.Stack]:
    """Postgres, Redis and the S3 server, without any process of ours."""
    stack = stacks.private_stack("test-servers", processes=())
    try:
        stack.start_servers()
        yield stack
    finally:
        stack.destroy()


@pytest.fixture(scope="session")
def databases(servers: stacks.Stack) -> Databases:
    """Maker of migrated databases on the Postgres of `servers`."""
    made = Databases(servers)
    made.prepare()
    return made


@pytest.fixture(scope="module")
def postgres_url(databases: Databases) -> Iterator[str]:
    """URL of a fresh, migrated, empty database. It stays as long as its server: ext4 takes longer
    for the files of a new one where many were removed in the last minutes, a quarter of a
    second."""
    yield databases.create()
    row_changes.stop_listening()


@pytest.fixture(scope="module")
def fresh_rows(postgres_url: str) -> Iterator[None]:
    """The rows of this process are those of `postgres_url`."""
    connect(postgres_url, pool_size=20)
    yield
    database.close_all()


@pytest.fixture(scope="session")
def redis_url(servers: stacks.Stack) -> str:
    """URL of a real, private Redis; shared by the session, so use key names of your own."""
    return servers.site.values["SVC_REDIS_URL"]


@pytest.fixture(scope="session")
def s3_settings(servers: stacks.Stack) -> dict[str, str]:
    """The SVC_S3_* settings of a real, private S3 server."""
    return {
        name: value for name, value in servers.site.values.items() if name.startswith("SVC_S3_")
    }


def _stack(name: str, settings: dict[str, str]) -> stacks.Stack:
    """Without Flower, which costs as much as what it watches; who looks at it starts it."""
    processes = [process for process in supervise.procfile() if process != "flower"]
    return stacks.private_stack(name, settings, processes=processes)


@pytest.fixture(scope="session")
def sim_stack(clean_host: None) -> Iterator[stacks.Stack]:
    """Every process but Flower, with the simulated hypervisor: real queue, database, HTTP, no
    VM."""
    yield from _running(_stack("test-sim", {
        "SVC_DRIVER": "simulated", "SVC_NODE_VCPUS": "512", "SVC_NODE_MEM_MB": "524288",
        "SVC_READINESS_WAIT_S": "3",
        # Older, smaller disks than the platform's floor, which can be grown.
        "SVC_SIMULATED_DISK_MB": "4096", "SVC_PRESET_BUILD_WAIT_S": "2",
        "SVC_PRESET_VERIFY_S": "6", **QUICK}))


@pytest.fixture(scope="session")
def vm_stack(clean_host: None) -> Iterator[stacks.Stack]:
    """As `sim_stack`, with real virtual machines from the image of this checkout, on a node that
    has the agent presets and has baked its image of them."""
    machines = {"SVC_DRIVER": "qemu", "SVC_PRESETS": ",".join(SLUGS), "SVC_WARM_SPARES": "0",
                # a database moves in five attempts, of which a test may kill four
                "SVC_DEPLOY_FENCE_S": "50", **BESIDE_GUESTS}
    for stack in _running(_stack("test-vm", machines), images=True):
        until(lambda: query(stack, "SELECT 1 FROM warm_images WHERE presets AND state = 'baked'"),
              timeout_s=900)
        yield stack


def _running(stack: stacks.Stack, *, images: bool = False) -> Iterator[stacks.Stack]:
    try:
        if images:
            stack.ensure_images()
        try:
            stack.up()
        except BaseException:
            _keep_logs(stack)
            raise
        yield stack
    finally:
        row_changes.stop_listening()
        stack.destroy()


def _persona(stack: stacks.Stack, name: str) -> Iterator[Persona]:
    persona = Persona(stack, name)
    yield persona
    persona.close()


@pytest.fixture(scope="session")
def alice(sim_stack: stacks.Stack) -> Iterator[Persona]:
    """Pays, and owns what the test makes."""
    yield from _persona(sim_stack, "ALICE")


@pytest.fixture(scope="session")
def bob(sim_stack: stacks.Stack) -> Iterator[Persona]:
    """Has a free account."""
    yield from _persona(sim_stack, "BOB")


@pytest.fixture(scope="session")
def mallory(sim_stack: stacks.Stack) -> Iterator[Persona]:
    """Pays too, and tries what is not hers."""
    yield from _persona(sim_stack, "MALLORY")


@pytest.fixture(scope="session")
def vm_alice(vm_stack: stacks.Stack) -> Iterator[Persona]:
    """Alice on the stack with real virtual machines."""
    yield from _persona(vm_stack, "ALICE")


@pytest.fixture(scope="session")
def vm_mallory(vm_stack: stacks.Stack) -> Iterator[Persona]:
    """Mallory on the stack with real virtual machines."""
    yield from _persona(vm_stack, "MALLORY")


@pytest.fixture(scope="session")
def presets_alice(vm_stack: stacks.Stack) -> Iterator[Persona]:
    """As `vm_alice`, with patience: to create an agent's sandbox may take minutes."""
    for persona in _persona(vm_stack, "ALICE"):
        persona.http.timeout = 600
        yield persona


@pytest.fixture(scope="module")
def deploys(sim_stack: stacks.Stack, alice: Persona) -> Deploys:
    """The deploys of alice's service on the simulated stack."""
    return Deploys(sim_stack, alice)


@pytest.fixture(scope="module")
def editor(vm_alice: Persona) -> Iterator[str]:
    """Id of a sandbox with a real virtual machine, in which projects are written."""
    made = vm_alice.create()["id"]
    yield made
    vm_alice.delete(f"/v1/sandboxes/{made}")


@pytest.fixture(scope="module")
def edge(postgres_url: str, redis_url: str,
         tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edge]:
    """Both hosts on an empty database with one big node that nobody works on."""
    yield from make_edge(postgres_url, redis_url, tmp_path_factory.mktemp("keys"))


@pytest.fixture
def owner(edge: Edge) -> User:
    """An account of `edge` that no other test uses."""
    return edge.newcomer()


@pytest.fixture
def sandbox(alice: Persona) -> Iterator[str]:
    """Id of a running sandbox of alice's on the simulated stack."""
    made = alice.create()["id"]
    yield made
    alice.delete(f"/v1/sandboxes/{made}")


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    """A receiver of webhooks."""
    made = Receiver()
    yield made
    made.close()


@pytest.fixture
def fault(sim_stack: stacks.Stack) -> Iterator[FaultPoint]:
    """A fault point of the stack's processes to arm."""
    with fault_point(sim_stack) as armed:
        yield armed
