"""A node whose processes are started ahead by the test alone."""
import pytest

from nodeworker.hypervisor.qemu.process import making_prepared
from tests.host.driver_lab import Lab
from tests.vm.prepared.checks import check_nothing_left


@pytest.fixture
def preparing(real, monkeypatch):
    """The node of `real`, where two processes may stand ready; there is none at first, and after
    it. None is started but by the test."""
    monkeypatch.setattr(making_prepared, "_replace", lambda host, machine: None)
    lab = Lab({**real.environ, "SVC_PREPARED_PROCESSES": "2"}, real.numbers)
    yield lab
    real.driver.tend_suspended()
    check_nothing_left(lab)
