"""Installs the packages of one preset into a directory, with Bun, as an account that may do
nothing else, from the versions and hashes of its lock file.

1. A mount namespace of its own shows the directory at a place the account can reach. 2. Bun runs as
that account, with an empty environment but for the way to the registry; no script of a package is
run. 3. What is not needed is removed; everything left is an ordinary file, and root's.
"""
import os
import pwd
import re
import shutil
import stat
import subprocess
from pathlib import Path

from guest.image.errors import ImageError
from guest.presets.recipe import Preset

INSTALL_TIMEOUT_S = 600.0
# Where the directory is shown: a directory of every system, hidden for this one process only.
_SHOWN_AT = "/mnt"
_ACCOUNT = pwd.getpwnam("nobody")
_FETCH = (
    'mount --bind "$1" {at} && cd {at} && exec setpriv --reuid={uid} --regid={gid} --clear-groups'
    " --no-new-privs --bounding-set=-all --pdeathsig=KILL ./bun install --frozen-lockfile"
    " --ignore-scripts --production --linker=hoisted --backend=copyfile --no-progress"
)
# What tells a package manager of the operator which registry to ask, and how.
_REGISTRY = re.compile(
    r"(npm_config|bun_config|https?_proxy|no_proxy|node_extra_ca_certs|ssl_cert)", re.IGNORECASE)
_ADDRESS = re.compile(r"https?://[^\s\"']+")
_OURS = ("bun", "own", "package.json", "bun.lock")


def install(preset: Preset, bun: Path, directory: Path, *,
            timeout_s: float = INSTALL_TIMEOUT_S) -> None:
    """Fill the empty `directory`, which no other process may use, with the files of `preset`.
    Raises ImageError with one sentence for users."""
    for path in preset.recipe:
        shutil.copy(path, directory / path.name)
    os.link(bun, directory / "bun")
    _make_home(directory / "own")
    os.chown(directory, _ACCOUNT.pw_uid, _ACCOUNT.pw_gid)
    _fetch(preset, directory, timeout_s)
    for pattern in (*_OURS, *preset.unneeded):
        for path in list(directory.glob(pattern)):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    _make_ours(directory)
    for program in preset.bins.values():
        if not (directory / program).is_file():
            raise ImageError(f"the packages of {preset.slug} have no {program}")


def _make_home(home: Path) -> None:
    """A home for Bun, with the operator's own choice of a registry in it."""
    home.mkdir(mode=0o700)
    chosen = Path(pwd.getpwuid(os.geteuid()).pw_dir) / ".npmrc"
    if chosen.is_file():
        shutil.copyfile(chosen, home / ".npmrc")
        os.chown(home / ".npmrc", _ACCOUNT.pw_uid, _ACCOUNT.pw_gid)
    os.chown(home, _ACCOUNT.pw_uid, _ACCOUNT.pw_gid)


def _fetch(preset: Preset, directory: Path, timeout_s: float) -> None:
    fetch = _FETCH.format(at=_SHOWN_AT, uid=_ACCOUNT.pw_uid, gid=_ACCOUNT.pw_gid)
    argv = ["unshare", "--mount", "--propagation=private", "/bin/sh", "-c", fetch, "fetch",
            str(directory)]
    env = {name: value for name, value in os.environ.items() if _REGISTRY.match(name)}
    env |= {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": f"{_SHOWN_AT}/own",
            "BUN_INSTALL_CACHE_DIR": f"{_SHOWN_AT}/own/cache"}
    try:
        done = subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired as expired:
        raise ImageError(
            f"the packages of {preset.slug} could not be fetched within {timeout_s:.0f} s"
        ) from expired
    if done.returncode:
        said = _ADDRESS.sub("the registry", done.stdout.decode(errors="replace")).splitlines()
        errors = [line.strip() for line in said if "error" in line.lower()] or said[-1:]
        raise ImageError(f"the packages of {preset.slug} could not be fetched:"
                         f" {'; '.join(errors[:2])[:300]}")


def _make_ours(directory: Path) -> None:
    """Give every file to root, with plain rights. Raises ImageError for a link or a special
    file."""
    for path in (directory, *directory.rglob("*")):
        mode = path.lstat().st_mode
        if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
            raise ImageError(f"its packages hold a link or a device: {path.name}")
        os.chown(path, 0, 0)
        path.chmod(0o755 if stat.S_ISDIR(mode) or mode & 0o100 else 0o644)
