"""Makes a bare Debian or Ubuntu machine ready: system packages and the virtual environment.
Standard library only.

1. System packages: only those whose files are missing are installed, and none of their services is
started. 2. `.venv` with exactly the wheels that requirements.txt pins by their digests; downloads
are kept under var/wheels for the next one. Both steps look first and do nothing on a machine that
is ready.
"""
import contextlib
import fcntl
import glob
import hashlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TextIO

from bin.console import Advice, end_as_by_ctrl_c, explained, let_others_read, say, step

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
POLICY = Path("/usr/sbin/policy-rc.d")
_OURS = "#!/bin/sh\n# Of `make packages` of a sandbox service, which removes it.\nexit 101\n"
# Debian package -> a file or program that shows that it is there (any of them).
PACKAGES: dict[str, tuple[str, ...]] = {
    "qemu-system-x86": ("qemu-system-x86_64",),
    "qemu-utils": ("qemu-img",),
    "mmdebstrap": ("mmdebstrap",),
    # checks the signatures of archives; Debian 13's apt has its own way
    "gpgv": ("gpgv",),
    # how mmdebstrap tells Ubuntu's releases, and so their archive, from Debian's
    "distro-info-data": ("/usr/share/distro-info/ubuntu.csv",),
    "nftables": ("nft",),
    "iproute2": ("ip",),
    "redis-server": ("redis-server",),
    "postgresql": ("/usr/lib/postgresql/*/bin/postgres",),
    # not nginx-light, which on Ubuntu 22.04 cannot count connections
    "nginx": ("nginx",),
    "e2fsprogs": ("mkfs.ext4",),
    "zstd": ("zstd",),
    "cpio": ("cpio",),
    "kmod": ("modprobe",),
    "procps": ("ps",),
    "util-linux": ("setpriv",),
    # makes the accounts of the processes
    "passwd": ("useradd",),
    "mount": ("mount",),
    "curl": ("curl",),
    "openssh-client": ("ssh-keygen",),
    "ca-certificates": ("/etc/ssl/certs/ca-certificates.crt",),
}
# For `make bench` only.
BENCH: dict[str, tuple[str, ...]] = {"wrk": ("wrk",)}
# For `make test` only.
BROWSER: dict[str, tuple[str, ...]] = {
    "chromium": ("chromium",),
    "libnss3-tools": ("certutil",),
}
# Without these there is a slower way: apt is asked for them once, and may say no. Package -> sign.
OPTIONAL: dict[str, str] = {
    # previews choose a guest's address and keep connections to it (config/nginx)
    "libnginx-mod-http-lua": "/usr/lib/nginx/modules/ngx_http_lua_module.so",
}
ASKED = ROOT / "var" / ".optional-packages"
# Services that these packages enable at boot; ours are private ones, so theirs are switched off
# again.
SERVICES = ("redis-server", "postgresql", "nginx")


def missing_packages(packages: Mapping[str, tuple[str, ...]] = PACKAGES) -> list[str]:
    """Names of the system packages that this machine lacks."""
    path = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin"
    missing = [
        name
        for name, signs in packages.items()
        if not any(
            glob.glob(sign) if sign.startswith("/") else shutil.which(sign, path=path)
            for sign in signs
        )
    ]
    if subprocess.run([sys.executable, "-c", "import ensurepip, venv"], capture_output=True,
                      check=False).returncode:
        missing.append("python3-venv")
    return missing


@contextlib.contextmanager
def _services_held_back() -> Iterator[None]:
    """Keep apt from starting services; a policy-rc.d that somebody else made is left alone."""
    ours = not POLICY.exists()
    if ours:
        POLICY.write_text(_OURS)
        POLICY.chmod(0o755)
    try:
        yield
    finally:
        if ours:
            POLICY.unlink(missing_ok=True)


def _remove_left_policy() -> None:
    """Let apt start services again after a run of ours that was killed."""
    if os.geteuid() == 0 and POLICY.is_file() and POLICY.read_text(errors="replace") == _OURS:
        POLICY.unlink()


def install_packages(missing: list[str]) -> None:
    """Install `missing` with apt-get; raises Advice if that is impossible."""
    if not missing:
        return
    if os.geteuid() != 0:
        raise Advice(
            f"these packages are missing: {' '.join(missing)}. Run this as root, or install them"
            " yourself."
        )
    if not shutil.which("apt-get"):
        raise Advice(
            f"this is neither Debian nor Ubuntu; install the equivalents of: {' '.join(missing)}.")
    environ = dict(os.environ, DEBIAN_FRONTEND="noninteractive", NEEDRESTART_SUSPEND="1")
    with step(f"Installing system packages: {' '.join(missing)}"), _services_held_back():
        _apt(["update"], environ)
        _apt(["install", "--yes", "--no-install-recommends", *missing], environ)
    for service in SERVICES:
        if any(service.startswith(name.split("-")[0]) for name in missing):
            for command in (["systemctl", "disable", service], ["update-rc.d", service, "disable"]):
                if shutil.which(command[0]):
                    subprocess.run(command, capture_output=True, check=False)


def install_browser() -> None:
    """What the tests of tests/browser drive; without it they are skipped."""
    missing = missing_packages(BROWSER)
    try:
        if "chromium" in missing and _is_ubuntu():
            raise Advice("Ubuntu's packages bring no Chromium, only a snap does.")
        install_packages(missing)
    except Advice as advice:
        say(f"  the tests in a browser are skipped: {advice}")


def _is_ubuntu() -> bool:
    with contextlib.suppress(OSError):
        return platform.freedesktop_os_release().get("ID") == "ubuntu"
    return False


def install_optional() -> None:
    """Ask apt once for what would be good to have; it must not remove anything for it, such as an
    nginx of another origin."""
    asked = ASKED.read_text().split() if ASKED.exists() else []
    wanted = [name for name, sign in OPTIONAL.items()
              if name not in asked and not Path(sign).exists()]
    if not wanted or os.geteuid() != 0 or not shutil.which("apt-get"):
        return
    environ = dict(os.environ, DEBIAN_FRONTEND="noninteractive", NEEDRESTART_SUSPEND="1")
    with step(f"Installing {' '.join(wanted)}, if this system has it"), _services_held_back():
        with contextlib.suppress(Advice):
            _apt(["update"], environ)
        for name in wanted:
            try:
                _apt(["install", "--yes", "--no-install-recommends", "--no-remove", name], environ)
            except Advice:
                say(f"  it has not; docs/operations.md says what is slower without {name}")
    ASKED.write_text("\n".join([*asked, *wanted]))


def _apt(arguments: list[str], environ: dict[str, str]) -> None:
    command = [
        "apt-get", "-q", "-o", "DPkg::Lock::Timeout=300", "-o", "Dpkg::Use-Pty=0", *arguments
    ]
    result = subprocess.run(command, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, check=False)
    if result.returncode:
        tail = "\n".join(result.stdout.splitlines()[-15:])
        absent = "candidate" in tail or "locate" in tail
        hint = " On Ubuntu the component `universe` has to be enabled." if absent else ""
        raise Advice(
            f"`{' '.join(command)}` failed; put this right and run make again.{hint}\n{tail}")


def make_venv() -> None:
    """Make `.venv` hold what requirements.txt pins; a stamp of its content makes the second call
    instant."""
    if sys.version_info < (3, 10):
        raise Advice(f"Python 3.10 or newer is needed, this is {sys.version.split()[0]}.")
    pins = ROOT / "requirements.txt"
    wanted = hashlib.sha256(pins.read_bytes() + sys.version.encode()).hexdigest()
    stamp = VENV / ".pinned"
    if stamp.is_file() and stamp.read_text() == wanted and _is_at_home():
        return
    with step("Installing the Python packages of requirements.txt into .venv"):
        # pip comes last: without it the environment is half made. A package whose installation was
        # broken off looks as if it were there.
        begun = VENV / ".installing"
        if begun.exists() or not _is_at_home() or not _same_python():
            if VENV.is_symlink():  # to another checkout's, which is not ours to clear
                VENV.unlink()
            _quietly([sys.executable, "-m", "venv", "--clear",
                      str(VENV)], "making the virtual environment")
        begun.touch()
        _install_wheels(pins)
        stamp.write_text(wanted)
        begun.unlink()


# Whatever an index or var/wheels offers: only the wheels whose digests requirements.txt has.
_HASHED = ("--quiet", "--require-hashes", "--only-binary=:all:")


def install_command(pins: Path, wheels: Path) -> list[str]:
    """Installs what is pinned from a directory of wheels."""
    pip = [str(VENV / "bin" / "python"), "-m", "pip"]
    return [*pip, "install", *_HASHED, "--no-index", "--find-links", str(wheels), "--requirement",
            str(pins)]


def fetch_command(pins: Path, wheels: Path) -> list[str]:
    """Fetches the wheels of what is pinned into a directory; a file there that is none of them is
    replaced."""
    pip = [str(VENV / "bin" / "python"), "-m", "pip"]
    return [*pip, "download", *_HASHED, "--dest", str(wheels), "--requirement", str(pins)]


def _install_wheels(pins: Path) -> None:
    """Install from var/wheels alone if everything is there, else fetch it there first."""
    wheels = ROOT / "var" / "wheels"
    offline = install_command(pins, wheels)
    if wheels.is_dir() and subprocess.run(offline, capture_output=True,
                                          check=False).returncode == 0:
        return
    _quietly(fetch_command(pins, wheels), "fetching Python packages")
    _quietly(offline, "installing Python packages")


def _is_at_home() -> bool:
    """False for an environment that was made for another path, or is half made: its programs name
    the Python they are run with. It may be a link to another checkout's."""
    pip = VENV / "bin" / "pip"
    return pip.exists() and f"{VENV.resolve()}/bin/" in pip.read_text(errors="replace")


def _same_python() -> bool:
    probe = [str(VENV / "bin" / "python"), "-c", "import sys; print(sys.version)"]
    result = subprocess.run(probe, capture_output=True, text=True, check=False)
    return result.stdout.strip() == sys.version.strip()


def _quietly(command: list[str], what: str) -> None:
    environ = dict(os.environ, PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_ROOT_USER_ACTION="ignore")
    result = subprocess.run(command, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, check=False)
    if result.returncode:
        tail = "\n".join(result.stdout.splitlines()[-15:])
        forged = "DO NOT MATCH THE HASHES" in result.stdout
        reason = (
            "a package is not the one that requirements.txt pins"
            if forged
            else "is the package index reachable, and is there a wheel for this Python and machine?"
        )
        raise Advice(f"{what} failed: {reason}\n{tail}")


def _open_lock() -> TextIO:
    (ROOT / "var").mkdir(exist_ok=True)
    return (ROOT / "var" / ".bootstrap").open("w")


def main(arguments: list[str]) -> None:
    """`python3 -m bin.bootstrap [python]`: both steps, or only the virtual environment with what
    that needs."""
    end_as_by_ctrl_c()
    let_others_read()
    with explained(), _open_lock() as lock:
        # `make up` and `make test` started at once take turns.
        fcntl.flock(lock, fcntl.LOCK_EX)
        _remove_left_policy()
        missing = missing_packages()
        install_packages([name for name in missing
                          if name == "python3-venv"] if "python" in arguments else missing)
        if "python" not in arguments:
            install_optional()
        make_venv()


if __name__ == "__main__":
    main(sys.argv[1:])
