"""A node whose processes are started ahead by the test alone."""
import pytest

from nodeworker.hypervisor.qemu.process import assemble_machine, making_prepared
from tests.host.driver_lab import Lab
from tests.vm.prepared.checks import check_nothing_left


@pytest.fixture
def preparing(real, monkeypatch):
    """The node of `real`, where two processes may stand ready; there is none at first, and after
    it. None is started but by the test. One in a hundred never answers, and all may be slow."""
    monkeypatch.setattr(making_prepared, "_replace", lambda host, machine: None)
    monkeypatch.setattr(making_prepared, "_TRIES", 5)
    monkeypatch.setattr(assemble_machine, "_ANSWER_LIMIT_S", 20.0)
    lab = Lab({**real.environ, "SVC_PREPARED_PROCESSES": "2"}, real.numbers)
    yield lab
    real.driver.tend_suspended()
    check_nothing_left(lab)
