"""What the agent asks of the guest's kernel directly: clock, random numbers, host name, root
device."""
import fcntl
import os
import socket
import struct
import time

# From linux/random.h: _IOW('R', 3, int[2]) and _IO('R', 7).
RNDADDENTROPY = 0x40085203
RNDRESEEDCRNG = 0x5207
# From fs/ext4/ext4.h: _IOW('f', 16, __u64). It is all that resize2fs does to a mounted file system.
EXT4_IOC_RESIZE_FS = 0x40086610
SECTOR_BYTES = 512  # of /sys/block, whatever the device's own are


class Kernel:
    """The kernel this process runs on."""

    def set_clock(self, nanoseconds: int) -> None:
        """Set the wall clock."""
        time.clock_settime_ns(time.CLOCK_REALTIME, nanoseconds)

    def reseed(self, entropy: bytes) -> None:
        """Mix and credit `entropy`, then make the generator use it at once.

        Clones share the state of the generator bit for bit; only reseeding makes their next random
        bytes differ, and without crediting first, a reseed may be skipped.
        """
        descriptor = os.open("/dev/urandom", os.O_RDWR)
        try:
            fcntl.ioctl(descriptor, RNDADDENTROPY,
                        struct.pack("ii",
                                    len(entropy) * 8, len(entropy)) + entropy)
            fcntl.ioctl(descriptor, RNDRESEEDCRNG)
        finally:
            os.close(descriptor)

    def set_hostname(self, name: str) -> None:
        """Set the host name of the running system."""
        socket.sethostname(name)

    def root_device_bytes(self) -> int:
        """Size of the block device under the root file system."""
        device = os.stat("/").st_dev
        with open(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/size",
                  encoding="ascii") as file:
            return int(file.read()) * SECTOR_BYTES

    def grow_root(self) -> None:
        """Let the mounted root file system, an ext4, fill its device; one that does already stays
        as it is."""
        blocks = self.root_device_bytes() // os.statvfs("/").f_bsize
        descriptor = os.open("/", os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, EXT4_IOC_RESIZE_FS, struct.pack("=Q", blocks))
        finally:
            os.close(descriptor)


class UntouchedKernel(Kernel):
    """For an agent tried out with `--root` on any machine, which keeps its clock, randomness and
    name."""

    def set_clock(self, nanoseconds: int) -> None:
        """Leave the clock alone."""

    def reseed(self, entropy: bytes) -> None:
        """Leave the generator alone."""

    def set_hostname(self, name: str) -> None:
        """Leave the name alone."""

    def root_device_bytes(self) -> int:
        """Larger than anyone waits for: the device does not grow here."""
        return 1 << 62

    def grow_root(self) -> None:
        """Leave the file system alone."""
