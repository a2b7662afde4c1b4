"""The browser that the tests of a file share."""
from pathlib import Path

import pytest

from tests.browser.chromium import Chromium
from tests.clients.deploys import Deploys


@pytest.fixture(scope="module")
def browser(vm_stack, tmp_path_factory):
    opened = Chromium(tmp_path_factory.mktemp("home"), Path(vm_stack.site.values["SVC_CA_FILE"]))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def deploys(vm_stack, vm_alice):
    """On the stack with real virtual machines."""
    return Deploys(vm_stack, vm_alice)
