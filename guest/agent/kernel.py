"""What the agent asks of the guest's kernel directly: the clock, the random number generator, the host name."""
import fcntl
import os
import socket
import struct
import time

# From linux/random.h: _IOW('R', 3, int[2]) and _IO('R', 7).
RNDADDENTROPY = 0x40085203
RNDRESEEDCRNG = 0x5207


class Kernel:
    """The kernel this process runs on."""

    def set_clock(self, nanoseconds: int) -> None:
        """Set the wall clock."""
        time.clock_settime_ns(time.CLOCK_REALTIME, nanoseconds)

    def reseed(self, entropy: bytes) -> None:
        """Mix and credit `entropy`, then make the generator use it at once.

        Clones share the state of the generator bit for bit; only reseeding makes their next random bytes differ, and
        without crediting first, a reseed may be skipped.
        """
        descriptor = os.open("/dev/urandom", os.O_RDWR)
        try:
            fcntl.ioctl(descriptor, RNDADDENTROPY, struct.pack("ii", len(entropy) * 8, len(entropy)) + entropy)
            fcntl.ioctl(descriptor, RNDRESEEDCRNG)
        finally:
            os.close(descriptor)

    def set_hostname(self, name: str) -> None:
        """Set the host name of the running system."""
        socket.sethostname(name)


class UntouchedKernel(Kernel):
    """For an agent tried out with `--root` on any machine, which keeps its clock, randomness and name."""

    def set_clock(self, nanoseconds: int) -> None:
        """Leave the clock alone."""

    def reseed(self, entropy: bytes) -> None:
        """Leave the generator alone."""

    def set_hostname(self, name: str) -> None:
        """Leave the name alone."""
