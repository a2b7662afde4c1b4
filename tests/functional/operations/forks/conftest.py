"""A running sandbox."""
import pytest

from tests.rows.operations import boot


@pytest.fixture
def source(deps):
    made = boot(deps)
    deps.queue.sent.clear()
    return made
