"""A node with two machines at most that stand ready for creates."""
import pytest

from tests.host.driver_checks import listen_longer
from tests.host.driver_lab import Lab
from tests.vm.spares.checks import check_nothing_left


@pytest.fixture
def sparing(real, monkeypatch):
    """The node of `real` with two spares at most; there is none at first, and after it."""
    listen_longer(monkeypatch.setattr)
    lab = Lab({**real.environ, "SVC_WARM_SPARES": "2"}, real.numbers)
    for path in lab.driver.host.warm.glob("*.wanted"):
        path.unlink()
    yield lab
    real.driver.tend_suspended()
    check_nothing_left(lab)
