"""The QEMU command line as a pure function of a description; golden-tested.

Every file reaches QEMU as an inherited descriptor, the whole disk chain is spelled out, and nothing
is left to defaults, so the process needs no access to the file system and two runs differ only
where their descriptions differ.
"""
import json
from dataclasses import dataclass

from nodeworker.hypervisor.driver import Shape

# Part of the host tuple: change it with anything below that changes the virtual hardware or its
# saved state.
HARDWARE_REVISION = 1
TRANSLATION_CACHE_MB = 256
CONSOLE_BYTES = 65536
RAM = "ram"
# What stands for the disk of a machine that is not known yet, and where such a QEMU sees the one
# directory that it is shown.
NO_DISK, SHOWN_AT = "nodisk", "/mnt"
# What `-blockdev` and `blockdev-add` are given.
Node = dict[str, object]
_SANDBOX = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"


@dataclass(frozen=True)
class DiskLayer:
    """One layer of the chain: `format` is `raw` or `qcow2`, `node` its name in QEMU, `descriptor`
    the open file."""

    format: str
    node: str
    descriptor: int


@dataclass(frozen=True)
class Kernel:
    """What to boot: descriptors of kernel and initrd, and the command line."""

    descriptor: int
    command_line: str
    initrd_descriptor: int | None = None


@dataclass(frozen=True)
class Hardware:
    """One QEMU process. `layers` go from the bottom up, the last one is written to; without
    `kernel` it can only go on with a saved state. Without `ram_descriptor` it waits, before it
    makes the machine, for its memory and for a disk that stands on `layers`.
    """

    name: str
    machine: str
    accelerator: str
    cpu: str
    shape: Shape
    ram_descriptor: int | None
    layers: tuple[DiskLayer, ...]
    tap_descriptor: int
    mac: str
    monitor_descriptor: int
    kernel: Kernel | None = None
    incoming: bool = False


def qemu_argv(hardware: Hardware, binary: str = "qemu-system-x86_64") -> list[str]:
    """The command line; with `incoming` QEMU waits for a saved state instead of booting. It always
    starts stopped."""
    suffix = "device" if hardware.machine == "microvm" else "pci"
    waits = hardware.ram_descriptor is None
    argv = [
        binary, "-name", hardware.name, "-nodefaults", "-no-user-config", "-display", "none",
        "-no-reboot",
        "-S",
        "-sandbox",
        _SANDBOX, "-machine", machine_option(hardware.machine, memory=not waits), "-accel",
        accelerator_option(hardware.accelerator), "-cpu", hardware.cpu, "-smp",
        str(hardware.shape.vcpus), "-m", str(hardware.shape.mem_mb),
        *(["--preconfig"] if waits else _memory_options(hardware)),
        "-global",
        "virtio-mmio.force-legacy=false",
    ]
    argv += disk_options(hardware.layers, writable=not waits)
    if waits:
        argv += ["-blockdev", _json({"driver": "null-co", "node-name": NO_DISK})]
    argv += [
        "-device",
        f"virtio-blk-{suffix},drive={NO_DISK if waits else hardware.layers[-1].node},"
        "werror=enospc,rerror=report",
        "-netdev",
        f"tap,id=net,fd={hardware.tap_descriptor},vhost=off",
        "-device",
        f"virtio-net-{suffix},netdev=net,mac={hardware.mac}"
        + (",romfile=" if suffix == "pci" else ""), "-object", "rng-builtin,id=rng", "-device",
        f"virtio-rng-{suffix},rng=rng",
        "-chardev",
        f"ringbuf,id=console,size={CONSOLE_BYTES}",
        "-serial",
        "chardev:console",
        "-chardev",
        f"socket,id=qmp,fd={hardware.monitor_descriptor},server=on,wait=off",
        "-mon",
        "chardev=qmp,mode=control",
    ]
    if suffix == "pci":
        argv += ["-device", "vmgenid,guid=auto"]
    if hardware.kernel is not None:
        argv += _kernel_options(hardware.kernel)
    return argv + (["-incoming", "defer"] if hardware.incoming else [])


def _memory_options(hardware: Hardware) -> list[str]:
    return ["-object", f"memory-backend-file,id={RAM},share=on,"
            f"mem-path=/proc/self/fd/{hardware.ram_descriptor},size={hardware.shape.mem_mb}M"]


def needs_kernel(machine: str, *, incoming: bool) -> bool:
    """Whether QEMU must be given a kernel: a restored guest brings its own, and one that boots
    again ends its process. A PC looks for the kernel's loader, a ROM, in the saved state."""
    return not (incoming and machine == "microvm")


def _kernel_options(kernel: Kernel) -> list[str]:
    options = ["-kernel", f"/proc/self/fd/{kernel.descriptor}", "-append", kernel.command_line]
    if kernel.initrd_descriptor is not None:
        options += ["-initrd", f"/proc/self/fd/{kernel.initrd_descriptor}"]
    return options


def machine_option(machine: str, *, memory: bool = True) -> str:
    """`microvm` keeps the legacy timers: without them the guest kernel loses interrupts under
    emulation. Without `memory` it has yet to be told its memory."""
    timers = ",acpi=off,pit=on,pic=on,rtc=on,isa-serial=on" if machine == "microvm" else ""
    return f"{machine}{timers}" + (f",memory-backend={RAM}" if memory else "")


def with_discard(kernel_command_line: str) -> str:
    """The kernel command line with `discard` among the options of the root's mount."""
    if "rootflags=" not in kernel_command_line:
        return f"{kernel_command_line} rootflags=discard"
    return kernel_command_line.replace("rootflags=", "rootflags=discard,", 1)


def accelerator_option(accelerator: str) -> str:
    """The translation cache is bounded, because it counts towards the cgroup's memory."""
    return (
        f"tcg,thread=multi,tb-size={TRANSLATION_CACHE_MB}" if accelerator == "tcg" else accelerator
    )


def node_name(reference: str) -> str:
    """Name of the disk node of a layer: unique over the life of a process, at most 26 of the 31
    characters allowed."""
    kind, _, name = reference.partition(":")
    return f"L{name}" if kind == "layer" else kind


def disk_options(layers: tuple[DiskLayer, ...], *, writable: bool = True) -> list[str]:
    """-add-fd and -blockdev options of a whole chain; fd set n belongs to layer n."""
    options: list[str] = []
    below: str | None = None
    for number, layer in enumerate(layers):
        options += ["-add-fd", f"fd={layer.descriptor},set={number}"]
        top = writable and number == len(layers) - 1
        node = layer_node(layer.format, layer.node, number, below=below, writable=top)
        options += ["-blockdev", _json(node)]
        below = layer.node
    return options


def _json(node: Node) -> str:
    return json.dumps(node, separators=(",", ":"))


def file_name(node: str) -> str:
    """Name of the node of the file in which the layer of disk node `node` is."""
    return f"{node}-file"


def layer_node(
    image_format: str, node: str, fd_set: int, *, below: Node | str | None, writable: bool
) -> Node:
    """The disk node of one layer, with that of its file in it, for the command line and for
    blockdev-add alike; `below` is the layer under it, or its name if QEMU has it already."""
    access: Node = {"read-only": not writable, "discard": "unmap"}
    layer: Node = {
        "driver": image_format, "node-name": node, **access,
        "file": {"driver": "file", "node-name": file_name(node),
                 "filename": f"/dev/fdset/{fd_set}", "locking": "off", **access},
    }
    if image_format == "qcow2":
        layer["backing"] = below
    return layer
