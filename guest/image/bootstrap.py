"""Installs a distribution into a directory with mmdebstrap and turns it into the guest with
customize.sh."""
from pathlib import Path

from guest.image.commands import run
from guest.image.distros import HERE, Distro
from guest.image.errors import ArchiveUnreachable, ImageError

BOOTSTRAP_TIMEOUT_S = 1800
AGENT_DIR, AGENT_SERVER_DIR = HERE.parent / "agent", HERE.parent / "agentserver"
_UNREACHABLE = ("Failed to fetch", "Unable to fetch", "Could not resolve",
                "Temporary failure resolving", "Could not connect", "Connection failed",
                "Connection timed out", "does not have a Release file", "apt-get update")


def mmdebstrap_argv(distro: Distro, target: Path) -> list[str]:
    """The command that installs `distro` into `target`, from the distribution's own default
    archive."""
    argv = [
        "mmdebstrap", "--mode=root", "--variant=apt", "--format=directory",
        f"--components={','.join(distro.components)}",
        f"--include={','.join(distro.packages)}",
        '--aptopt=Apt::Install-Recommends "false"',
        '--aptopt=Acquire::Retries "2"',
        '--aptopt=Acquire::http::Timeout "20"',
        '--aptopt=Acquire::GzipIndexes "true"',
        # Both are kept for the user: see "package cache" in customize.sh.
        "--skip=cleanup/apt/lists",
        "--skip=cleanup/apt/cache",
        f"--customize-hook={HERE / 'customize.sh'} \"$1\"",
    ]
    if distro.keyring:
        argv.append(f"--keyring={distro.keyring}")
    return [*argv, distro.suite, str(target)]


def bootstrap(distro: Distro, target: Path, *, bun: Path, token_file: Path,
              dns: tuple[str, ...]) -> None:
    """Fill `target` with the guest's files; raises ArchiveUnreachable if packages cannot be
    fetched, or ImageError."""
    environment = {
        "SVC_OVERLAY": str(HERE / "overlay"),
        "SVC_AGENT": str(AGENT_DIR),
        "SVC_AGENT_SERVER": str(AGENT_SERVER_DIR),
        "SVC_BUN": str(bun),
        "SVC_TOKEN": str(token_file),
        "SVC_GUEST_DNS": " ".join(dns),
    }
    try:
        run(mmdebstrap_argv(distro, target), timeout_s=BOOTSTRAP_TIMEOUT_S, env=environment)
    except ImageError as error:
        if any(sign in str(error) for sign in _UNREACHABLE):
            raise ArchiveUnreachable(
                f"the {distro.name} archive cannot be reached: {error}") from error
        raise
    # mmdebstrap cleans this file up last. Older ones write `uninitialized`, and systemd then mounts
    # one read-only.
    (target / "etc/machine-id").write_text("")
