"""The Unix accounts that the processes run as, the directories that belong to them, and the code
that they have to be able to read."""
import contextlib
import fcntl
import os
import pwd
import shlex
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

from bin.console import Advice
from bin.stack.site import ROOT, Site
from config import owned_files
from config.processes import PROCESSES, accounts
from services.llm.configured.config_file import list_files

# What they import.
CODE = ("app", "config", "guest", "models", "objects", "services", "tasks")
_LOCK = Path("/run/svc-accounts.lock")


def prepare(site: Site) -> None:
    """Make the accounts that are missing, the directories of the processes that write one, and the
    files of the LLM proxy readable for their one reader."""
    _ensure_accounts()
    if path := site.values.get("SVC_LLM_CONFIG"):
        close_llm_files(Path(path))
    for process in PROCESSES.values():
        if own := site.directory_of(process):
            own_directory(own, process.account, 0o755 if process.shown else 0o700)


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


def own_directory(path: Path, account: str, mode: int = 0o700) -> Path:
    """Make a directory, or one that root made before, the account's, with all that is in it; nobody
    else can read it unless `mode` says so. Raises OSError if it is a link that an account made."""
    entry = pwd.getpwnam(account)
    path.mkdir(mode=mode, parents=True, exist_ok=True)
    with owned_files.opened(path) as directory:
        os.fchmod(directory, mode)
        if os.fstat(directory).st_uid != entry.pw_uid:
            for _, folders, files, folder in os.fwalk(dir_fd=directory):
                for name in (*folders, *files):
                    with contextlib.suppress(FileNotFoundError):
                        os.chown(name, entry.pw_uid, entry.pw_gid, dir_fd=folder,
                                 follow_symlinks=False)
            # Last: a walk that is cut short is begun again.
            os.fchown(directory, entry.pw_uid, entry.pw_gid)
    return path


def close_llm_files(path: Path) -> None:
    """Leave the configuration of the LLM proxy and its key files to root and the guest gateway.

    Raises Advice if there is no such file, or if the guest gateway may not enter its directory.
    """
    if path.absolute().is_relative_to(ROOT / "var"):
        raise Advice("SVC_LLM_CONFIG: no process sees more of var/ than a directory of its own;"
                     " give the file another one.")
    group = pwd.getpwnam(PROCESSES["guest-gateway"].account).pw_gid
    for file in list_files(path):
        try:
            folder = file.parent.stat()
            os.chown(file, 0, group)
            file.chmod(0o640)
        except OSError as error:
            raise Advice(f"SVC_LLM_CONFIG: {file} cannot be used: {error.strerror}.") from error
        if not folder.st_mode & (0o011 if folder.st_gid == group else 0o001):
            raise Advice(
                f"SVC_LLM_CONFIG: the guest gateway may not enter {file.parent}. Give the file a"
                f" directory of its own: chmod 711 {file.parent}")


def own_file(path: Path, text: str, account: str, mode: int = 0o600) -> None:
    """Write a file of the account's, whole or not at all; nobody else can read it unless `mode`
    says so."""
    entry = pwd.getpwnam(account)
    owned_files.write(path, text.encode(), mode, owner=(entry.pw_uid, entry.pw_gid))


def check_code(checkout: Path = ROOT) -> None:
    """Raises Advice, with the command that mends it, if something of the code can be read by its
    owner only: a umask of 077 or 027 leaves a clone, or what a pull brings, like that."""
    commands = []
    if _is_closed(checkout):  # itself alone: in its var/ are secrets
        commands.append(f"chmod o+rx {shlex.quote(str(checkout))}")
    folders = [checkout / name for name in CODE]
    closed = [str(folder) for folder in folders if any(map(_is_closed, _walk(folder)))]
    # An installation closes its top, and there are twenty thousand files in it.
    venv = checkout / ".venv"
    tops = (path for depth in ("*", "lib/*", "lib/*/*", "lib/*/*/*") for path in venv.glob(depth))
    if any(map(_is_closed, (venv, *tops))):
        closed.append(str(venv))
    if closed:
        commands.append(f"chmod -R o+rX {shlex.join(closed)}")
    if commands:
        raise Advice("the accounts of the processes cannot read all of the code, which was written"
                     f" with a umask that closes it to others. Open it: {' && '.join(commands)}")


def _walk(top: Path) -> Iterator[str]:
    """A folder and all that is in it, but hidden files, such as those of an editor, and what Python
    does without."""
    for folder, folders, files in os.walk(top):
        folders[:] = [name for name in folders if name != "__pycache__"]
        yield folder
        yield from (f"{folder}/{name}" for name in files if not name.startswith("."))


def _is_closed(path: "Path | str") -> bool:
    """Whether others cannot read it; False for a link, and for what is gone by now."""
    with contextlib.suppress(FileNotFoundError):
        mode = os.lstat(path).st_mode
        needed = 0o005 if stat.S_ISDIR(mode) else 0o004
        return mode & needed != needed
    return False
