"""The Linux distributions a guest can be made of, and what differs between them."""
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent

# The contract's "Default guest image", then what a shell user misses at once when it is not there.
_PACKAGES = (
    "git",
    "curl",
    "wget",
    "unzip",
    "python3",
    "openssh-server",
    "openssh-client",
    "sudo",
    "ca-certificates",
    "iproute2",
    "systemd-sysv",
    "kmod",
    "procps",
    "psmisc",
    "less",
    "nano",
    "file",
    "iputils-ping",
    "netbase",
    "xz-utils",
    "bzip2",
    "zip",
    "python3-pip",
    "python3-venv",
)
# rw: there is no fstab. panic/reboot: a crashed guest ends at once and is seen. no_timer_check: the
# check counts ticks against a busy wait, which fails on a busy host. init_on_alloc=0: zeroing every
# page twice is slow in emulation, and init_on_free would touch all RAM at boot. mitigations=off:
# one tenant owns the whole guest, root included; keeping tenants apart is the host's work. ipv6:
# sockets yes, addresses no. noinit_itable: the inode tables of a fresh sparse image are zero
# already; writing them out would grow every overlay.
_CMDLINE = (
    "root=/dev/vda rw console=ttyS0 quiet loglevel=3 systemd.show_status=false panic=-1 reboot=t"
    " tsc=reliable no_timer_check random.trust_cpu=on init_on_alloc=0 mitigations=off net.ifnames=0"
    " ipv6.disable_ipv6=1 rootflags=noinit_itable audit=0 fsck.mode=skip"
)


@dataclass(frozen=True)
class Distro:
    """One base: what mmdebstrap needs, the machine type QEMU shall emulate, and how the kernel
    starts."""

    name: str
    suite: str
    components: tuple[str, ...]
    packages: tuple[str, ...]
    machine: str
    cmdline: str
    keyring: Path | None = None
    initrd_modules: tuple[str, ...] = ()


# The kvm kernel has virtio and ext4 built in and takes virtio_mmio devices from its command line:
# no initrd, no ACPI.
UBUNTU = Distro(
    name="ubuntu-22.04",
    suite="jammy",
    components=("main", "universe"),
    packages=("linux-image-kvm", *_PACKAGES),
    machine="microvm",
    cmdline=_CMDLINE,
    keyring=HERE / "keys" / "ubuntu-archive-2018.asc",
)
# Debian's cloud kernel has everything as modules and needs ACPI to find its devices.
DEBIAN = Distro(
    name="debian-12",
    suite="bookworm",
    components=("main",),
    packages=("linux-image-cloud-amd64", "busybox-static", *_PACKAGES),
    machine="q35",
    cmdline=_CMDLINE,
    initrd_modules=("virtio_pci", "virtio_blk", "virtio_net", "ext4"),
)
DISTROS = {distro.name: distro for distro in (UBUNTU, DEBIAN)}
FALLBACK = {UBUNTU.name: DEBIAN}
