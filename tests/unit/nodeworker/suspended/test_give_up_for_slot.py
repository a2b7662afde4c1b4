"""In which order machines that nobody uses are given up for a network slot."""
from types import SimpleNamespace

import pytest

from nodeworker.hypervisor.qemu.suspended import give_up_for_slot
from nodeworker.hypervisor.qemu.suspended.give_up_for_slot import give_up_for_slot as give_up

PREPARED, SPARE, KEPT = "prepared", "spare", "kept"


@pytest.fixture
def host(monkeypatch):
    """The kinds of machine that there are, which is all that these ask of a host."""
    host = SimpleNamespace(left=[KEPT, SPARE, PREPARED, SPARE], ended=[])

    def end(kind):
        def end_one(host):
            if kind not in host.left:
                return False
            host.left.remove(kind)
            host.ended.append(kind)
            return True
        return end_one

    monkeypatch.setattr(give_up_for_slot.prepared_processes, "end_eldest", end(PREPARED))
    monkeypatch.setattr(give_up_for_slot.warm_spares, "end_one", end(SPARE))
    monkeypatch.setattr(give_up_for_slot.kept_machines, "end_eldest", end(KEPT))
    return host


def test_what_is_made_again_soonest_goes_first_and_one_at_a_time(host):
    assert give_up(host) and host.ended == [PREPARED]
    while give_up(host):
        pass
    assert host.ended == [PREPARED, SPARE, SPARE, KEPT]
