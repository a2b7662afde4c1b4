"""A sandbox's directory on its host: its records, its lock, its tokens, and what is true of it."""
import json
import os
from dataclasses import replace

import pytest

from nodeworker.hypervisor import locks
from nodeworker.hypervisor.driver import Forward, Shape, VmBusy, VmState
from nodeworker.hypervisor.host_facts import HostTuple
from nodeworker.hypervisor.qemu.host import warm_image_key
from nodeworker.hypervisor.qemu.records import Machine, Phase, SandboxRecord, SnapshotRecord, Task
from nodeworker.hypervisor.qemu.rundir import RunDir, boot_id, ram_is_whole

HOST = HostTuple("QEMU 7.2", "microvm/1", "tcg", "max/2000000", "image-1")
MACHINE = Machine(Shape(2, 2048), ("image:image-1", "template:small", "layer:abc"), 16 << 30, HOST)
RECORD = SandboxRecord("box", MACHINE, Phase.RUNNING, None, boot_id(), 20000,
                       (Forward(20001, 80), ), 4711, 12, 5)


@pytest.mark.parametrize("record", [
    RECORD,
    replace(RECORD, phase=Phase.SAVED, pid=None, slot=None),
    replace(RECORD, task=Task.SNAPSHOT, forwards=()),
])
def test_a_sandbox_record_survives_being_written(tmp_path, record):
    rundir = RunDir(tmp_path / "box")
    rundir.path.mkdir()
    for durable in (True, False, True):
        written = rundir.write(record, durable=durable)
        assert rundir.find_record() == written == replace(record, revision=written.revision)


def test_after_a_power_failure_the_last_durable_record_counts(tmp_path, monkeypatch):
    rundir = RunDir(tmp_path / "box")
    rundir.path.mkdir()
    kept = rundir.write(RECORD, durable=True)
    later = rundir.write(replace(RECORD, slot=99), durable=False)
    assert rundir.find_record() == later
    monkeypatch.setattr("nodeworker.hypervisor.qemu.rundir.boot_id", lambda: "the next boot")
    assert rundir.find_record() == kept
    (rundir.path / "vm.now").write_bytes(b"")
    assert rundir.find_record() == kept


def test_a_snapshot_record_survives_being_written():
    record = SnapshotRecord("snap", MACHINE, 17, 1.5)
    written = json.loads(json.dumps(record.to_json()))
    assert SnapshotRecord.from_json(written) == record
    assert SnapshotRecord.from_json({**written, "rootfs_sha": "of an older version"}) == record


def test_a_record_of_another_make_counts_as_none(tmp_path):
    rundir = RunDir(tmp_path / "box")
    rundir.path.mkdir()
    (rundir.path / "vm.json").write_text('{"phase": "dreaming"}')
    assert rundir.find_record() is None
    assert rundir.inspect() is VmState.PARTIAL


def test_the_agent_s_port_is_forwarded_with_the_others():
    assert RECORD.host_ports() == {20000: 1024, 20001: 80}


@pytest.mark.parametrize(("alive", "phase", "task", "boot", "expected"), [
    (True, Phase.RUNNING, None, "now", VmState.RUNNING),
    (True, Phase.RUNNING, Task.HIBERNATE, "now", VmState.PARTIAL),
    (True, Phase.RUNNING, Task.CREATE, "now", VmState.PARTIAL),
    (True, Phase.SAVED, None, "now", VmState.PARTIAL),
    (True, Phase.WAKING, Task.WAKE, "now", VmState.PARTIAL),
    (False, Phase.RUNNING, None, "now", VmState.DISK_ONLY),
    (False, Phase.RUNNING, Task.HIBERNATE, "now", VmState.DISK_ONLY),
    (False, Phase.RUNNING, Task.CREATE, "now", VmState.PARTIAL),
    (False, Phase.SAVED, None, "before", VmState.SAVED),
    (False, Phase.WAKING, Task.WAKE, "now", VmState.SAVED),
    (False, Phase.WAKING, Task.WAKE, "before", VmState.DISK_ONLY),
])
def test_what_is_true_follows_from_lock_phase_task_and_boot(tmp_path, alive, phase, task, boot,
                                                            expected):
    rundir = RunDir(tmp_path / "box")
    rundir.path.mkdir()
    record = replace(RECORD, phase=phase, task=task,
                     boot_id=boot_id() if boot == "now" else "another boot")
    rundir.write(record, durable=False)
    if alive:
        lock = rundir.take_vm_lock()
    assert rundir.inspect() is expected
    if alive:
        os.close(lock)
        assert ram_is_whole(record) is (phase is Phase.SAVED
                                        or (phase is Phase.WAKING and boot == "now"))


def test_an_empty_run_directory_is_nothing(tmp_path):
    rundir = RunDir(tmp_path / "box")
    assert rundir.inspect() is None
    with rundir.operation(create=True):
        assert rundir.inspect() is None


def test_only_one_holds_the_operation_lock(tmp_path, monkeypatch):
    rundir = RunDir(tmp_path / "box")
    with rundir.operation(create=True):
        with pytest.raises(VmBusy), rundir.operation():
            raise AssertionError("two at once")
    with rundir.operation():
        assert rundir.is_busy_or_alive()
    assert not rundir.is_busy_or_alive()


def test_a_lock_on_a_directory_that_was_removed_is_not_taken_for_the_new_one(tmp_path):
    path = tmp_path / "box" / "op.lock"
    path.parent.mkdir()
    first = locks.try_lock(path)
    path.rename(tmp_path / "old")
    second = locks.try_lock(path)
    assert first is not None and second is not None
    assert locks.is_locked(path) and locks.is_locked(tmp_path / "old")
    os.close(first)
    os.close(second)
    assert not locks.is_locked(path)


def test_without_a_directory_there_is_nothing_to_lock(tmp_path):
    with pytest.raises(FileNotFoundError), RunDir(tmp_path / "none").operation():
        raise AssertionError("locked nothing")


def test_tokens_are_remembered_in_order_without_doubles(tmp_path):
    rundir = RunDir(tmp_path)
    rundir.write_tokens("new", "old", "", "new")
    assert rundir.tokens() == ("new", "old")
    assert (tmp_path / "tokens").stat().st_mode & 0o777 == 0o600


def test_tokens_that_are_remembered_are_not_written_again(tmp_path):
    rundir = RunDir(tmp_path)
    rundir.add_tokens("own", "image")
    assert rundir.tokens() == ("own", "image")
    written = os.stat(tmp_path / "tokens").st_ino
    rundir.add_tokens("image", "own")
    assert os.stat(tmp_path / "tokens").st_ino == written
    rundir.add_tokens("own", "of another image")
    assert rundir.tokens() == ("own", "image", "of another image")


def test_a_template_is_named_after_all_that_its_memory_depends_on():
    changes = [{}, {"hypervisor_version": "8"}, {"machine": "q35/1"}, {"accelerator": "kvm"},
               {"cpu_model": "host"}, {"image": "image-2"}]
    keys = {warm_image_key(replace(HOST, **change), Shape(1, 1024), "quiet") for change in changes}
    others = {warm_image_key(HOST, Shape(1, 2048), "quiet"),
              warm_image_key(HOST, Shape(1, 1024), "quiet norandmaps")}
    assert len(keys | others) == 8
