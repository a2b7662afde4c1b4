"""The accounts that the processes run as, and the directories that belong to them."""
import contextlib
import fcntl
import os
import pwd
import subprocess
from pathlib import Path

from bin.console import Advice
from bin.stack.site import Site
from config.processes import PROCESSES, accounts

_LOCK = Path("/run/svc-accounts.lock")


def prepare(site: Site) -> None:
    """Make the accounts that are missing, and the directories of the processes that write one."""
    _ensure_accounts()
    for process in PROCESSES.values():
        if own := site.directory_of(process):
            own_directory(own, process.account)


def _ensure_accounts() -> None:
    """System accounts, to which nobody can sign in."""
    if not missing():
        return
    with _LOCK.open("w") as lock:
        # Stacks that start at once take turns, for useradd refuses to.
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name in missing():
            made = subprocess.run([
                "useradd", "--system", "--user-group", "--no-create-home", "--home-dir",
                "/nonexistent", "--shell", "/usr/sbin/nologin", name
            ], capture_output=True, text=True, check=False)
            if made.returncode:
                raise Advice(f"the account {name} was not made: {made.stderr.strip()}")


def missing() -> list[str]:
    """Accounts of the table that this machine does not have."""
    known = {entry.pw_name for entry in pwd.getpwall()}
    return [name for name in accounts() if name not in known]


def own_directory(path: Path, account: str) -> Path:
    """Make a directory, or one that root made before, the account's, with all that is in it; nobody
    else can read it."""
    entry = pwd.getpwnam(account)
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.chmod(0o700)
    if path.stat().st_uid != entry.pw_uid:
        for folder, folders, files in os.walk(path):
            for name in (*folders, *files):
                with contextlib.suppress(FileNotFoundError):
                    os.lchown(Path(folder, name), entry.pw_uid, entry.pw_gid)
        # Last: a walk that is cut short is begun again.
        os.chown(path, entry.pw_uid, entry.pw_gid)
    return path


def own_file(path: Path, text: str, account: str) -> None:
    """Write a file that only the account reads."""
    entry = pwd.getpwnam(account)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as stream:
        os.fchown(stream.fileno(), entry.pw_uid, entry.pw_gid)
        stream.write(text)
