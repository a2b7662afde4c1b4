"""The browser that the tests of a file share."""
from pathlib import Path

import pytest

from tests.browser.chromium import Chromium


@pytest.fixture(scope="module")
def browser(vm_stack, tmp_path_factory):
    opened = Chromium(tmp_path_factory.mktemp("home"), Path(vm_stack.site.values["SVC_CA_FILE"]))
    yield opened
    opened.close()
