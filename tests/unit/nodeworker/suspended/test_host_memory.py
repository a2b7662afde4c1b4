"""When the host's memory is short for what only stands ready, and when scarce for machines."""
import pytest

from nodeworker.hypervisor import host_memory

WAITED = "some avg10={} avg60=0.00 avg300=0.00 total=1\nfull avg10=0.00 avg60=0.00\n"


@pytest.mark.parametrize(("left", "waited", "short", "scarce"), [
    (21, "0.00", False, False), (19, "0.00", True, False), (9, "0.00", True, True),
    (50, "9.99", False, False), (50, "10.01", False, True), (50, None, False, False),
])
def test_by_what_is_left_and_how_long_was_waited(
        tmp_path, monkeypatch, left, waited, short, scarce):
    (tmp_path / "meminfo").write_text(f"MemTotal: 100 kB\nMemFree: 1 kB\nMemAvailable: {left} kB\n")
    (tmp_path / "pressure").mkdir()
    if waited is not None:
        (tmp_path / "pressure/memory").write_text(WAITED.format(waited))
    monkeypatch.setattr(host_memory, "_PROC", tmp_path)
    assert (host_memory.is_short(), host_memory.is_scarce()) == (short, scarce)


def test_it_reads_this_host(monkeypatch):
    assert 0 < host_memory.left_share() < 1
    monkeypatch.setattr(host_memory, "_LEFT", 0.0)
    monkeypatch.setattr(host_memory, "_WAITED", 100.0)
    assert not host_memory.is_scarce(), "nobody waits for more than all of the time"
