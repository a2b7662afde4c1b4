"""Limits and CPU time of a machine, on either version of control groups."""

import pytest

from nodeworker.hypervisor.driver import Shape
from nodeworker.hypervisor.qemu.process import cgroup


def test_limits_follow_the_shape():
    limits = cgroup.Limits.of(Shape(4, 4096))
    assert cgroup.files_v2(limits) == {
        "cpu.max": "450000 100000", "cpu.weight": "400", "memory.max": str(4608 << 20),
        "pids.max": "256"
    }
    assert cgroup.files_v1(limits)["cpu"] == {
        "cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "450000", "cpu.shares": "4096"
    }
    assert cgroup.files_v1(limits)["memory"] == {"memory.limit_in_bytes": str(4608 << 20)}


def test_one_that_gives_way_has_the_least_share_there_is():
    limits = cgroup.Limits.of(Shape(4, 4096), gives_way=True)
    assert cgroup.files_v2(limits)["cpu.weight"] == "1"
    assert cgroup.files_v1(limits)["cpu"]["cpu.shares"] == "2"
    normal = cgroup.Limits.of(Shape(4, 4096))
    assert cgroup.files_v2(limits) | {"cpu.weight": "400"} == cgroup.files_v2(normal)


@pytest.mark.parametrize("is_v2", [True, False], ids=["v2", "v1"])
def test_a_cgroup_tree_writes_what_its_version_of_the_kernel_reads(tmp_path, is_v2):
    if is_v2:
        (tmp_path / "cgroup.controllers").touch()
    else:
        for name in ("cpu", "memory", "pids", "systemd"):
            (tmp_path / name).mkdir()
    tree = cgroup.CgroupTree("svc", tmp_path)
    tree.create("box", cgroup.Limits.of(Shape(1, 1024)))
    tree.join("box", 4711)
    written = {
        str(path.relative_to(tmp_path)): path.read_text()
        for path in tmp_path.rglob("*")
        if path.is_file()
    }
    if is_v2:
        assert (
            written["svc/box/cpu.max"] == "150000 100000"
            and written["svc/box/cgroup.procs"] == "4711"
        )
        assert (
            written["cgroup.subtree_control"]
            == written["svc/cgroup.subtree_control"]
            == "+cpu +memory +pids"
        )
    else:
        assert written["cpu/svc/box/cpu.cfs_quota_us"] == "150000"
        assert {name for name, text in written.items() if text == "4711"} == \
            {f"{name}/svc/box/cgroup.procs" for name in ("cpu", "memory", "pids", "systemd")}
    assert tree.names() == {"box"} and tree.pids("box") == {4711}


@pytest.mark.parametrize(("is_v2", "file", "content"), [
    (True, "svc/box/cpu.stat", "usage_usec 1234567\nuser_usec 1\nsystem_usec 2\n"),
    (False, "cpuacct/svc/box/cpuacct.usage", "1234567000\n"),
], ids=["v2", "v1"])
def test_cpu_time_is_read_from_what_either_version_keeps(tmp_path, is_v2, file, content):
    if is_v2:
        (tmp_path / "cgroup.controllers").touch()
    tree = cgroup.CgroupTree("svc", tmp_path)
    assert (tree.cpu_ns("box"), tree.inode("box")) == (0, None)
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(content)
    assert tree.cpu_ns("box") == 1_234_567_000
    assert tree.inode("box") == (tmp_path / file).parent.stat().st_ino


@pytest.mark.parametrize("is_v2", [True, False], ids=["v2", "v1"])
def test_rousing_moves_nobody(tmp_path, monkeypatch, is_v2):
    if is_v2:
        (tmp_path / "cgroup.controllers").touch()
    own = tmp_path / ("" if is_v2 else "cpu") / "a slice/own"
    told = tmp_path / "told"
    told.write_text("5:cpuset:/\n4:cpu,cpuacct:/a slice/own\n0::/a slice/own\n")
    monkeypatch.setattr(cgroup, "_OWN_PLACES", told)
    tree = cgroup.CgroupTree("svc", tmp_path)
    tree.rouse()  # a place that is not there: nothing happens
    own.mkdir(parents=True)
    tree.rouse()
    assert (own / "cgroup.procs").read_text() == "0"  # the one who writes
    told.write_text("5:cpuset:/a slice/own\n")
    (own / "cgroup.procs").unlink()
    tree.rouse()
    assert not list(tmp_path.rglob("cgroup.procs")), "nobody says where it is"
