"""Every advisory lock has a number of its own, and all numbers are in one place."""
from bin.stack.site import ROOT
from models.locks import Lock, LockClass

REGISTRY = ROOT / "models" / "locks.py"
PACKAGES = ("app", "bin", "config", "models", "nodeworker", "services", "tasks")


def test_no_two_locks_share_a_number():
    for kind in (Lock, LockClass):
        # `__members__` has the aliases too, which a second name for one number would be.
        assert len({int(lock) for lock in kind.__members__.values()}) == len(kind.__members__)


def test_no_other_module_takes_an_advisory_lock_by_a_number_of_its_own():
    files = [
        path for package in PACKAGES for path in (ROOT / package).rglob("*.py") if path != REGISTRY
    ]
    assert len(files) > 100
    assert [str(path) for path in files if "advisory_" in path.read_text()] == []
    assert "advisory_" in REGISTRY.read_text()
