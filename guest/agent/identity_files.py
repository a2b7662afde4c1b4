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
MACHINE_ID, HOSTNAME = "/etc/machine-id", "/etc/hostname"
HOST_KEY, HOST_KEY_PUBLIC = (f"{HOST_KEY_DIR}/ssh_host_ed25519_key{suffix}"
                             for suffix in ("", ".pub"))
# What else `ssh-keygen -A` makes.
_OTHER_HOST_KEYS = tuple(f"{HOST_KEY_DIR}/ssh_host_{kind}_key{suffix}"
                         for kind in ("rsa", "ecdsa", "dsa") for suffix in ("", ".pub"))
SSHD_PID_FILE = "/run/sshd.pid"


def open_identity_files(root: str, opened: dict[str, int]) -> None:
    """Open what names a guest and holds nothing else to be written, into `opened` (path ->
    descriptor): most of what could keep one from being written shows here. A guest whose user has
    removed SSH gets no host keys. Raises OSError."""
    for path, mode in ((MACHINE_ID, 0o444), (HOSTNAME, 0o644)):
        opened[path] = _open(root + path, mode)
    if os.path.isdir(root + HOST_KEY_DIR):
        for path, mode in ((HOST_KEY, 0o600), (HOST_KEY_PUBLIC, 0o644)):
            opened[path] = _open(root + path, mode)


def has_host_keys(opened: dict[str, int]) -> bool:
    """Whether there is SSH in the guest."""
    return HOST_KEY in opened


def write_identity_files(root: str, opened: dict[str, int], machine_id: str, hostname: str,
                         pair: tuple[str, str] | None) -> None:
    """Write them; `pair` (private, public) becomes the only SSH host key, also of a running sshd.
    None where there is no SSH."""
    _put(opened[MACHINE_ID], machine_id.encode() + b"\n")
    _put(opened[HOSTNAME], hostname.encode() + b"\n")
    if pair is not None:
        remove(root, _OTHER_HOST_KEYS)
        for path, key in zip((HOST_KEY, HOST_KEY_PUBLIC), pair):
            _put(opened[path], key.rstrip("\n").encode() + b"\n")
        _reload_sshd(root)


def close_all(opened: dict[str, int]) -> None:
    """Close them; none is open afterwards."""
    while opened:
        os.close(opened.popitem()[1])


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
    """Overwrite the files that `adopt` overwrites with what they hold, and look for those that it
    removes, to have all that takes in the guest's caches."""
    remove(root, _OTHER_HOST_KEYS)
    for path in (MACHINE_ID, HOSTNAME, HOSTS, HOST_KEY, HOST_KEY_PUBLIC):
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
    anyway, and in place is several times faster: it is on the way of every clone.
    """
    descriptor = _open(path, mode)
    try:
        _put(descriptor, content.encode())
    finally:
        os.close(descriptor)


def _open(path: str, mode: int) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK, mode)


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
