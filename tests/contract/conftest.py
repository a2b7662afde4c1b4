"""The contract line by line: `edge` (both hosts in this process) for rules, whole stacks for what
involves a node."""
import pytest


@pytest.fixture(scope="module")
def sandbox(alice):
    """A running sandbox of alice's, for tests that leave it running."""
    made = alice.create(ports=[3000], env={"FROM": "create"})
    yield made
    alice.delete(f"/v1/sandboxes/{made['id']}")
