"""The command line of QEMU, golden."""
import re
from dataclasses import replace

import pytest

from nodeworker.hypervisor.driver import Shape
from nodeworker.hypervisor.qemu.process import argv
from services.metering.plans import SIZES

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
            '{"driver":"raw","node-name":"image","read-only":true,"discard":"unmap",'
            '"file":{"driver":"file","node-name":"image-file","filename":"/dev/fdset/0",'
            '"locking":"off","read-only":true,"discard":"unmap"}}'
        ),
        "-add-fd",
        "fd=12,set=1",
        "-blockdev",
        (
            '{"driver":"qcow2","node-name":"template","read-only":true,"discard":"unmap",'
            '"file":{"driver":"file","node-name":"template-file","filename":"/dev/fdset/1",'
            '"locking":"off","read-only":true,"discard":"unmap"},"backing":"image"}'
        ),
        "-add-fd",
        "fd=13,set=2",
        "-blockdev",
        (
            '{"driver":"qcow2","node-name":"Labc","read-only":false,"discard":"unmap",'
            '"file":{"driver":"file","node-name":"Labc-file","filename":"/dev/fdset/2",'
            '"locking":"off","read-only":false,"discard":"unmap"},"backing":"template"}'
        ),
        "-device",
        "virtio-blk-device,drive=Labc,werror=enospc,rerror=report",
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
    ({"machine": "q35"}, ("-device", "virtio-blk-pci,drive=Labc,werror=enospc,rerror=report")),
    ({"machine": "q35"}, ("-device", "vmgenid,guid=auto")),
    ({"kernel": argv.Kernel(16, "quiet", 17)}, ("-initrd", "/proc/self/fd/17")),
])
def test_what_a_difference_in_hardware_changes(change, expected):
    assert expected in options(argv.qemu_argv(replace(HARDWARE, **change)))


def test_a_restored_microvm_is_given_no_kernel():
    assert not argv.needs_kernel("microvm", incoming=True)
    assert argv.needs_kernel("microvm", incoming=False) and argv.needs_kernel("q35", incoming=True)
    told = argv.qemu_argv(replace(HARDWARE, kernel=None, incoming=True))
    assert told == argv.qemu_argv(HARDWARE)[:-4] + ["-incoming", "defer"]


def test_a_process_that_is_started_ahead_has_neither_memory_nor_a_disk_to_write_to():
    ahead = options(argv.qemu_argv(replace(HARDWARE, ram_descriptor=None, kernel=None,
                                           layers=HARDWARE.layers[:2], incoming=True)))
    usual = options(argv.qemu_argv(replace(HARDWARE, kernel=None, incoming=True)))
    top = [pair for pair in usual if pair[1] and ("Labc" in pair[1] or pair[1] == "fd=13,set=2")]
    memory = [pair for pair in usual if pair[1] and "backend" in pair[1]]
    assert set(usual) - set(ahead) == {*top, *memory}
    assert set(ahead) - set(usual) == {
        ("--preconfig", None),
        ("-machine", "microvm,acpi=off,pit=on,pic=on,rtc=on,isa-serial=on"),
        ("-blockdev", '{"driver":"null-co","node-name":"nodisk"}'),
        ("-device", "virtio-blk-device,drive=nodisk,werror=enospc,rerror=report"),
    }


def test_no_option_names_a_path_outside_the_inherited_descriptors():
    paths = re.findall(
        r"(?<![\w.])/[\w/.-]+", " ".join(argv.qemu_argv(replace(HARDWARE, incoming=True)))
    )
    assert {path.rsplit("/", 1)[0]
            for path in paths} <= {"/proc/self/fd", "/dev/fdset", "/dev", "/box"} | {""}


def test_node_names_are_short_enough_for_qemu():
    assert argv.node_name("layer:" + "f" * 24) == "L" + "f" * 24
    assert len(argv.file_name(argv.node_name("layer:" + "f" * 24))) <= 31
    assert argv.node_name("image:whatever") == "image"


@pytest.mark.parametrize(("known", "wanted"), [
    ("root=/dev/vda rw", "root=/dev/vda rw rootflags=discard"),
    ("rootflags=noinit_itable quiet", "rootflags=discard,noinit_itable quiet"),
])
def test_the_root_is_mounted_so_that_deleted_blocks_are_discarded(known, wanted):
    assert argv.with_discard(known) == wanted


@pytest.mark.parametrize("size", SIZES.values(), ids=lambda size: size.name)
def test_every_size_is_given_to_qemu(size):
    shape = Shape(size.vcpus, size.mem_mb)
    given = options(argv.qemu_argv(replace(HARDWARE, shape=shape)))
    assert ("-smp", str(size.vcpus)) in given and ("-m", str(size.mem_mb)) in given
    assert any(option == "-object" and value.endswith(f",size={size.mem_mb}M")
               for option, value in given)
