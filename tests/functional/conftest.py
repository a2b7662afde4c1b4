"""A guest that the test plays, as the agent of a sandbox of the simulated stack."""
from collections.abc import Iterator

import pytest

from bin.stack.running import Stack
from tests.fakes.hostile_guest import HostileGuest, point_at, serving
from tests.stack.personas import Persona


@pytest.fixture
def guest() -> Iterator[HostileGuest]:
    """What it replies is for the test to say."""
    with serving() as server:
        yield server


@pytest.fixture
def hostile(sim_stack: Stack, alice: Persona, guest: HostileGuest) -> Iterator[str]:
    """Id of a running sandbox of alice's whose agent is `guest`."""
    made = alice.create()["id"]
    point_at(sim_stack, made, guest.server_address[1])
    yield made
    alice.delete(f"/v1/sandboxes/{made}")
