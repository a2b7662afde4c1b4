"""What the tests of a room make is deleted after each."""
import pytest


@pytest.fixture
def made(alice):
    """Ids of sandboxes to delete afterwards."""
    ids = []
    yield ids
    for sandbox in ids:
        alice.delete(f"/v1/sandboxes/{sandbox}")
