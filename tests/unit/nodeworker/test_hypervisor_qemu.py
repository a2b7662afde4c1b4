"""The pure parts of the QEMU driver, its locks and its records."""
import json
import os
import re
import socket
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from nodeworker.hypervisor import locks
from nodeworker.hypervisor.driver import Forward, HostTuple, LaunchSpec, Shape, VmBusy, VmState
from nodeworker.hypervisor.qemu.guest import identity
from nodeworker.hypervisor.qemu.host import template_key
from nodeworker.hypervisor.qemu.process import argv, cgroup, qmp, timestamp
from nodeworker.hypervisor.qemu.process.spawn import start_ticks
from nodeworker.hypervisor.qemu.records import Machine, Phase, SandboxRecord, SnapshotRecord, Task
from nodeworker.hypervisor.qemu.rundir import RunDir, boot_id, ram_is_whole

HOST = HostTuple("QEMU 7.2", "microvm/1", "tcg", "max/2000000", "image-1")
MACHINE = Machine(Shape(2, 2048), ("image:image-1", "template:small", "layer:abc"), 16 << 30, HOST)
RECORD = SandboxRecord("box", MACHINE, Phase.RUNNING, None, boot_id(), 20000,
                       (Forward(20001, 80), ), 4711, 12, 5)
HARDWARE = argv.Hardware(
    name="svc/box", machine="microvm", accelerator="tcg", cpu="max", shape=Shape(2, 2048),
    ram_descriptor=10,
    layers=(
        argv.DiskLayer("raw", "image", 11), argv.DiskLayer("qcow2", "template", 12),
        argv.DiskLayer("qcow2", "Labc", 13),
    ),
    tap_descriptor=14, mac="52:54:00:00:00:01", monitor_descriptor=15,
    kernel=argv.Kernel(16, "root=/dev/vda"),
)


def options(command):
    """(option, value) pairs of a command line."""
    pairs, position = [], 1
    while position < len(command):
        has_value = position + 1 < len(command) and not command[position + 1].startswith("-")
        pairs.append((command[position], command[position + 1] if has_value else None))
        position += 2 if has_value else 1
    return pairs


def test_the_command_line_of_a_microvm():
    assert argv.qemu_argv(HARDWARE) == [
        "qemu-system-x86_64",
        "-name",
        "svc/box",
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-no-reboot",
        "-S",
        "-sandbox",
        "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
        "-machine",
        "microvm,acpi=off,pit=on,pic=on,rtc=on,isa-serial=on,memory-backend=ram",
        "-accel",
        "tcg,thread=multi,tb-size=256",
        "-cpu",
        "max",
        "-smp",
        "2",
        "-m",
        "2048",
        "-object",
        "memory-backend-file,id=ram,share=on,mem-path=/proc/self/fd/10,size=2048M",
        "-global",
        "virtio-mmio.force-legacy=false",
        "-add-fd",
        "fd=11,set=0",
        "-blockdev",
        (
            '{"driver":"file","node-name":"image-file","filename":"/dev/fdset/0","locking":"off",'
            '"read-only":true,"discard":"unmap"}'
        ),
        "-blockdev",
        '{"driver":"raw","node-name":"image","file":"image-file","read-only":true,'
        '"discard":"unmap"}',
        "-add-fd",
        "fd=12,set=1",
        "-blockdev",
        (
            '{"driver":"file","node-name":"template-file","filename":"/dev/fdset/1",'
            '"locking":"off",'
            '"read-only":true,"discard":"unmap"}'
        ),
        "-blockdev",
        (
            '{"driver":"qcow2","node-name":"template","file":"template-file","read-only":true,'
            '"discard":"unmap","backing":"image"}'
        ),
        "-add-fd",
        "fd=13,set=2",
        "-blockdev",
        (
            '{"driver":"file","node-name":"Labc-file","filename":"/dev/fdset/2","locking":"off",'
            '"read-only":false,"discard":"unmap"}'
        ),
        "-blockdev",
        (
            '{"driver":"qcow2","node-name":"Labc","file":"Labc-file","read-only":false,'
            '"discard":"unmap",'
            '"backing":"template"}'
        ),
        "-device",
        "virtio-blk-device,drive=Labc",
        "-netdev",
        "tap,id=net,fd=14,vhost=off",
        "-device",
        "virtio-net-device,netdev=net,mac=52:54:00:00:00:01",
        "-object",
        "rng-builtin,id=rng",
        "-device",
        "virtio-rng-device,rng=rng",
        "-chardev",
        "ringbuf,id=console,size=65536",
        "-serial",
        "chardev:console",
        "-chardev",
        "socket,id=qmp,fd=15,server=on,wait=off",
        "-mon",
        "chardev=qmp,mode=control",
        "-kernel",
        "/proc/self/fd/16",
        "-append",
        "root=/dev/vda",
    ]


@pytest.mark.parametrize(("change", "expected"), [
    ({"incoming": True}, ("-incoming", "defer")),
    ({"accelerator": "kvm"}, ("-accel", "kvm")),
    ({"machine": "q35"}, ("-machine", "q35,memory-backend=ram")),
    ({"machine": "q35"}, ("-device", "virtio-blk-pci,drive=Labc")),
    ({"machine": "q35"}, ("-device", "vmgenid,guid=auto")),
    ({"kernel": argv.Kernel(16, "quiet", 17)}, ("-initrd", "/proc/self/fd/17")),
])
def test_what_a_difference_in_hardware_changes(change, expected):
    assert expected in options(argv.qemu_argv(replace(HARDWARE, **change)))


def test_no_option_names_a_path_outside_the_inherited_descriptors():
    paths = re.findall(
        r"(?<![\w.])/[\w/.-]+", " ".join(argv.qemu_argv(replace(HARDWARE, incoming=True)))
    )
    assert {path.rsplit("/", 1)[0]
            for path in paths} <= {"/proc/self/fd", "/dev/fdset", "/dev", "/box"} | {""}


def test_node_names_are_short_enough_for_qemu():
    assert argv.node_name("layer:" + "f" * 24) == "L" + "f" * 24
    assert len(argv.node_name("layer:" + "f" * 24) + "-file") <= 31
    assert argv.node_name("image:whatever") == "image"


def test_limits_follow_the_shape():
    limits = cgroup.Limits.of(Shape(4, 4096))
    assert cgroup.files_v2(limits) == {
        "cpu.max": "450000 100000", "memory.max": str(4608 << 20), "pids.max": "256"
    }
    assert cgroup.files_v1(limits)["cpu"] == {
        "cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "450000"
    }
    assert cgroup.files_v1(limits)["memory"] == {"memory.limit_in_bytes": str(4608 << 20)}


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
    record = SnapshotRecord("snap", MACHINE, "sha", 17, 1.5)
    assert SnapshotRecord.from_json(json.loads(json.dumps(record.to_json()))) == record


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


def test_identities_differ_in_everything_and_the_host_key_is_one_openssh_reads(tmp_path):
    one, other = identity.new_identity("box1"), identity.new_identity("box1")
    assert one.machine_id != other.machine_id and one.host_key_private != other.host_key_private
    assert re.fullmatch("[0-9a-f]{32}", one.machine_id)
    assert one.host_key_private.startswith("-----BEGIN OPENSSH PRIVATE KEY-----")
    assert re.fullmatch(r"ssh-ed25519 \S+ root@box1\n", one.host_key_public)
    assert one.host_key_private not in repr(one)


def test_a_template_is_named_after_all_that_its_memory_depends_on():
    changes = [{}, {"hypervisor_version": "8"}, {"machine": "q35/1"}, {"accelerator": "kvm"},
               {"cpu_model": "host"}, {"image": "image-2"}]
    keys = {template_key(replace(HOST, **change), Shape(1, 1024)) for change in changes}
    assert len(keys | {template_key(HOST, Shape(1, 2048))}) == 7


def test_the_counter_is_measured_once_per_boot_and_keeps_its_value_within_measuring_noise(tmp_path):
    rate = timestamp.counter_khz(tmp_path)
    assert timestamp.counter_khz(tmp_path) == rate
    for known, kept in ((rate + 1, True), (rate * 2, False)):
        (tmp_path / "tsc.json").write_text(json.dumps({"boot_id": "an earlier one", "khz": known}))
        assert (timestamp.counter_khz(tmp_path) == known) is kept


def test_a_process_is_known_by_its_start_time():
    assert start_ticks(os.getpid()) == start_ticks(os.getpid())
    assert start_ticks(1 << 30) is None


def test_secrets_do_not_show_in_a_launch():
    assert "hush" not in repr(LaunchSpec("box", Shape(1, 1024), "hush", 20000, env={"KEY": "hush"}))


@pytest.fixture
def monitor(tmp_path):
    """A fake end of a monitor socket below a path too long for a socket address; yields what to
    answer with."""
    path = tmp_path / ("d" * 100) / "qmp.sock"
    path.parent.mkdir()
    server, answers, seen = qmp.listen(path), [], []

    def serve():
        peer, _ = server.accept()
        with peer, peer.makefile("rwb") as stream:
            stream.write(b'{"QMP": {}}\n')
            stream.flush()
            decoder = json.JSONDecoder()
            text = ""
            while chunk := peer.recv(65536):
                text += chunk.decode()
                while text:
                    request, end = decoder.raw_decode(text)
                    text = text[end:]
                    seen.append(request)
                    for answer in [[{
                            "return": {}
                    }]] if request["execute"] == "qmp_capabilities" else [answers.pop(0)]:
                        for line in answer:
                            stream.write(json.dumps(line).encode() + b"\n")
                    stream.flush()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield path, answers, seen
    server.close()


def test_a_command_skips_events_and_returns_its_own_answer(monitor):
    path, answers, seen = monitor
    answers.append([{"event": "STOP"}, {"return": {"status": "paused"}},
                    {"event": "MIGRATION", "data": {}}])
    with qmp.QmpClient(path) as client:
        assert client.run("query-status", {"some": 1}) == {"status": "paused"}
        assert client.wait_event(lambda event: event["event"] == "MIGRATION", 5)
    assert seen[1] == {"execute": "query-status", "arguments": {"some": 1}}


def test_a_refusal_and_a_silence_are_errors(monitor):
    path, answers, _ = monitor
    answers += [[{"error": {"desc": "no such thing"}}], []]
    with qmp.QmpClient(path, deadline_s=0.3) as client:
        with pytest.raises(qmp.QmpError, match="no such thing"):
            client.run("impossible")
        with pytest.raises(qmp.QmpError):
            client.run("forgotten")


def test_no_monitor_is_an_error_at_once(tmp_path):
    with pytest.raises(qmp.QmpError):
        qmp.QmpClient(tmp_path / "qmp.sock")
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(Path(tmp_path) / "stale"))
        with pytest.raises(qmp.QmpError):
            qmp.QmpClient(tmp_path / "stale")
