"""A node of its own for driver tests: one with real VMs, one simulated; each lives for the session
and starts empty."""
import ipaddress
from collections.abc import Iterator

import pytest

from bin.stack import running as stacks
from tests.clients.deploys import Deploys
from tests.host.driver_lab import SHAPE, Lab
from tests.host.guest_network import public_server
from tests.stack.personas import Persona


def _baked(stack: stacks.Stack) -> Iterator[Lab]:
    try:
        if stack.site.values["SVC_DRIVER"] == "qemu":
            stack.ensure_images()
        lab = Lab(stack.site.values)
        lab.driver.reclaim()
        lab.driver.bake(SHAPE)
        yield lab
        lab.clean()
    finally:
        stack.destroy()


@pytest.fixture(scope="session")
def qemu_lab(clean_host: None) -> Iterator[Lab]:
    """Real VMs from the image of this checkout, on a node beside any other."""
    yield from _baked(stacks.private_stack(
        "test-driver", {"SVC_DRIVER": "qemu", "SVC_CHAIN_DEPTH_LIMIT": "3",
                        "SVC_KEPT_MACHINES": "0", "SVC_WARM_SPARES": "0",
                        "SVC_PREPARED_PROCESSES": "0"}, processes=()))


@pytest.fixture
def narrow_lab(clean_host: None) -> Iterator[Lab]:
    """Real VMs on a node with fifteen slots, none of which is made ready ahead of need."""
    stack = stacks.private_stack("test-slots", {"SVC_DRIVER": "qemu", "SVC_SLOT_POOL": "0",
                                                "SVC_PREPARED_PROCESSES": "0"}, processes=())
    network = ipaddress.ip_network(stack.site.values["SVC_SLOT_NETWORK"]).network_address
    stack.site.values["SVC_SLOT_NETWORK"] = f"{network}/27"
    yield from _baked(stack)


@pytest.fixture(scope="session")
def simulated_lab(clean_host: None) -> Iterator[Lab]:
    """Guests in memory, at ports that no other stack of the host has; needs no image."""
    yield from _baked(stacks.private_stack("test-simulated", {"SVC_DRIVER": "simulated"},
                                           processes=()))


@pytest.fixture(params=["simulated", "qemu"])
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Each driver in turn; every sandbox and snapshot of a test is removed after it."""
    chosen: Lab = request.getfixturevalue(f"{request.param}_lab")
    yield chosen
    chosen.clean()


@pytest.fixture
def real(qemu_lab: Lab) -> Iterator[Lab]:
    """The driver with real VMs; every sandbox and snapshot of a test is removed after it."""
    yield qemu_lab
    qemu_lab.clean()


@pytest.fixture
def internet(real: Lab) -> Iterator[int]:
    """A listener at a public address; its port."""
    with public_server(real.settings.net_prefix) as port:
        yield port


@pytest.fixture(scope="module")
def deploys(vm_stack: stacks.Stack, vm_alice: Persona) -> Deploys:
    """On the stack with real virtual machines."""
    return Deploys(vm_stack, vm_alice)
