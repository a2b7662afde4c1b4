"""The files by which a guest is known (machine-id, host name, SSH host keys), overwritten in place.
"""
import os
import signal
import stat
import subprocess
from collections.abc import Iterable

HOSTS = "/etc/hosts"
HOSTS_MOST_BYTES = 1024 ** 2
HOST_KEY_DIR = "/etc/ssh"
HOST_KEY_NAMES = ("ssh_host_ed25519_key", "ssh_host_ed25519_key.pub")
# What else `ssh-keygen -A` makes.
_OTHER_HOST_KEYS = tuple(f"{HOST_KEY_DIR}/ssh_host_{kind}_key{suffix}"
                         for kind in ("rsa", "ecdsa", "dsa") for suffix in ("", ".pub"))
SSHD_PID_FILE = "/run/sshd.pid"


def identity_files(machine_id: str, hostname: str) -> dict[str, tuple[str, int]]:
    """Content and mode of the files that name a guest and hold nothing else."""
    return {
        "/etc/machine-id": (machine_id + "\n", 0o444),
        "/etc/hostname": (hostname + "\n", 0o644),
    }


def name_in_hosts(root: str, hostname: str) -> None:
    """Have /etc/hosts lead `hostname` to 127.0.1.1; the user's own lines stay.

    A guest can live without that line: what is no regular file, is too large or cannot be written
    stays as it is.
    """
    try:
        # so that a pipe keeps nobody waiting
        descriptor = os.open(root + HOSTS, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK, 0o644)
    except OSError:
        return
    try:
        facts = os.fstat(descriptor)
        if stat.S_ISREG(facts.st_mode) and facts.st_size <= HOSTS_MOST_BYTES:
            _put(descriptor, _renamed(os.pread(descriptor, facts.st_size, 0), hostname.encode()))
    except OSError:
        pass
    finally:
        os.close(descriptor)


def _renamed(hosts: bytes, hostname: bytes) -> bytes:
    """`hosts` with `hostname` in the first line of 127.0.1.1, or in a new last line."""
    own = b"127.0.1.1 " + hostname + b"\n"
    if not hosts.strip():
        return b"127.0.0.1 localhost\n::1 localhost\n" + own
    for space in b" ", b"\t":
        before, found, after = (b"\n" + hosts).partition(b"\n127.0.1.1" + space)
        if found:
            return (before + b"\n" + own + after.partition(b"\n")[2])[1:]
    return hosts + b"\n" * (not hosts.endswith(b"\n")) + own


def replace_host_keys(root: str, pair: tuple[str, str]) -> None:
    """Make `pair` (private, public) the only SSH host keys, also of a running sshd. A guest whose
    user has removed SSH has none."""
    if not os.path.isdir(root + HOST_KEY_DIR):
        return
    remove(root, _OTHER_HOST_KEYS)
    for name, key, mode in zip(HOST_KEY_NAMES, pair, (0o600, 0o644)):
        overwrite(f"{root}{HOST_KEY_DIR}/{name}", key.rstrip("\n") + "\n", mode)
    _reload_sshd(root)


def make_host_key(directory: str, comment: str) -> tuple[str, str]:
    """A new key pair (private, public), made in `directory`, which is the agent's alone; takes a
    good part of a second."""
    path = f"{directory}/host-key"
    for name in (path, path + ".pub"):
        if os.path.exists(name):
            os.unlink(name)
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", path]
    subprocess.run(command, stdin=subprocess.DEVNULL, check=True, timeout=20)
    with open(path, encoding="ascii") as private, open(path + ".pub", encoding="ascii") as public:
        pair = private.read(), public.read()
    os.unlink(path)
    os.unlink(path + ".pub")
    return pair


def rewrite_identity_files(root: str) -> None:
    """Overwrite the files that `adopt` overwrites with what they hold, to have all that takes in
    the page cache."""
    host_keys = (f"{HOST_KEY_DIR}/{name}" for name in HOST_KEY_NAMES)
    for path in (*identity_files("", ""), HOSTS, *host_keys):
        with open(root + path, encoding="utf-8") as file:
            content = file.read()
        # an empty file has no block yet, which to give it takes longer than to write into one
        overwrite(root + path, content or "\n", 0o600)


def remove(root: str, paths: Iterable[str]) -> None:
    """Remove those of the files that are there. An exception for each that is not would cost an
    emulated guest more than to look first."""
    for path in paths:
        if os.access(root + path, os.F_OK):
            os.unlink(root + path)


def overwrite(path: str, content: str, mode: int) -> None:
    """Give a small system file new content, in place.

    A rename would be safe against a crash in the middle, but a guest that crashed is adopted again
    anyway, and in place is several times faster: it is on the way of every wake.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK, mode)
    try:
        _put(descriptor, content.encode())
    finally:
        os.close(descriptor)


def _put(descriptor: int, content: bytes) -> None:
    longer = os.lseek(descriptor, 0, os.SEEK_END) > len(content)
    os.pwrite(descriptor, content, 0)
    if longer:
        os.ftruncate(descriptor, len(content))


def _reload_sshd(root: str) -> None:
    """A running sshd keeps the old keys in memory until it is told."""
    if not os.access(root + SSHD_PID_FILE, os.F_OK):
        return
    try:
        with open(root + SSHD_PID_FILE, encoding="ascii") as pid_file:
            os.kill(int(pid_file.read()), signal.SIGHUP)
    except (FileNotFoundError, ProcessLookupError, ValueError):
        pass  # it is not running
