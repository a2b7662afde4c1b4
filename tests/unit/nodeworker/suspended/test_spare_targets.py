"""How many spares of what there should be, from what creates have asked for lately."""
import time
from types import SimpleNamespace

import pytest

from nodeworker.hypervisor.qemu.suspended import demand, spare_targets


def host(folder, most=4):
    return SimpleNamespace(warm=folder, warm_images=folder / "images",
                           settings=SimpleNamespace(warm_spares=most))


def test_what_was_asked_for_lately_counts_and_is_forgotten_after_a_while(tmp_path):
    for _ in range(3):
        demand.note(tmp_path, "small")
    old = time.time() - demand.WINDOW_S - 1
    (tmp_path / "large.wanted").write_text(f"{old:.0f}\n")
    assert demand.count(tmp_path) == {"small": 3}
    assert [path.name for path in tmp_path.iterdir()] == ["small.wanted"]


@pytest.mark.parametrize("left", [b"\0" * 512, b"1\n\xff\n", b"soon\n", b""])
def test_what_a_power_failure_left_is_forgotten(tmp_path, left):
    (tmp_path / "small.wanted").write_bytes(left)
    demand.note(tmp_path, "large")
    assert demand.count(tmp_path) == {"large": 1}
    demand.note(tmp_path, "small")
    assert demand.count(tmp_path) == {"small": 1, "large": 1}


def test_a_long_list_is_begun_anew(tmp_path):
    (tmp_path / "small.wanted").write_text("1\n" * 40_000)
    demand.note(tmp_path, "small")
    demand.note(tmp_path, "small")
    assert demand.count(tmp_path) == {"small": 2}


@pytest.mark.parametrize("asked, most, wanted", [
    ({"small": 1}, 4, {"small": 1}),
    ({"small": 9}, 4, {"small": 4}),
    ({"small": 1, "large": 3}, 4, {"large": 3, "small": 1}),
    ({"small": 3, "large": 2}, 4, {"small": 3, "large": 1}),
    ({"small": 5, "large": 2}, 4, {"small": 3, "large": 1}),
    ({"small": 9, "large": 1}, 4, {"small": 4, "large": 0}),
    ({"small": 5}, 0, {"small": 0}),
])
def test_they_are_in_proportion_to_what_was_wanted_within_the_limit(tmp_path, asked, most, wanted):
    for image, times in asked.items():
        for _ in range(times):
            demand.note(tmp_path, image)
    assert spare_targets.targets(host(tmp_path, most)) == wanted


@pytest.mark.parametrize("asked, most, wanted", [
    ({"snapshot:a": 1, "small": 1}, 4, {"snapshot:a": 0, "small": 1}),
    ({"snapshot:a": 2, "small": 1}, 4, {"snapshot:a": 1, "small": 1}),
    ({"snapshot:a": 9, "small": 1}, 4, {"snapshot:a": 2, "small": 1}),
    ({"snapshot:a": 9, "snapshot:b": 8, "small": 7}, 4,
     {"snapshot:a": 1, "snapshot:b": 1, "small": 2}),
    ({"snapshot:a": 5, "small": 9}, 4, {"small": 3, "snapshot:a": 1}),
    ({"snapshot:a": 2, "small": 3}, 2, {"small": 1, "snapshot:a": 1}),
    ({"snapshot:a": 2, "small": 9}, 2, {"small": 2, "snapshot:a": 0}),
    ({"snapshot:a": 9, "small": 1}, 1, {"snapshot:a": 0, "small": 1}),
    ({"snapshot:gone": 9, "small": 1}, 4, {"snapshot:gone": 0, "small": 1}),
    ({"snapshot:a": 2}, 4, {"snapshot:a": 1, "smallest": 1}),
])
def test_a_snapshot_that_is_used_often_gets_some_but_never_most(tmp_path, monkeypatch, asked, most,
                                                                wanted):
    monkeypatch.setattr(spare_targets, "find_source", lambda host, name: "gone" not in name)
    monkeypatch.setattr(spare_targets, "_smallest", lambda host: ["smallest"])
    for source, times in asked.items():
        for _ in range(times):
            demand.note(tmp_path, source)
    assert spare_targets.targets(host(tmp_path, most)) == wanted
