"""What a process sees of the files of its host: lines of the shell, run in a mount namespace of its
own.

The checkout and Python are there, read-only, at the paths they have; closed directories above them
(such as root's home), var/ and `.env` are covered; the one directory that the process writes is put
back. A node worker sees everything, and has no such lines.
"""
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bin.stack.site import ROOT, Site
from config.processes import PROCESSES, Process

# Files of certificates that the operator's environment or settings may name.
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
                 "SVC_TLS_CERT", "SVC_TLS_KEY")
_TMP = Path("/tmp")


def view(site: Site, process: Process) -> list[str]:
    """The lines for a process of a stack; none if it sees everything."""
    if process.is_root:
        return []
    read = [site.data_dir / process.reads] if process.reads else []
    return view_of(_visible(site.environ_of(process), process), ROOT, site.directory_of(process),
                   site.data_dir, read)


def view_of(visible: Sequence[Path], checkout: Path, own: Path | None, data_dir: Path,
            read: Sequence[Path] = ()) -> list[str]:
    """Lines of the shell that leave, of what lies under closed directories, only `visible`, of the
    stack only `own` and, not to be written, `read`, and a /tmp of its own. What stays is kept aside
    while the rest is covered."""
    kept = [*visible, *([own] if own else []), *read]
    aside = Path("/run" if any(path.is_relative_to("/mnt") for path in kept) else "/mnt")
    lines = [_cover(aside)]
    for number, path in enumerate(kept):
        make = "mkdir" if path.is_dir() else "touch"
        lines += [f"{make} {aside}/{number}", f"mount --bind {_quoted(path)} {aside}/{number}"]
    closed = {top for path in visible if (top := _closed_above(path))} - {_TMP}
    lines.append(_cover(_TMP, "1777"))
    lines += [_cover(top) for top in sorted(closed) if not top.is_relative_to(_TMP)]
    for number, path in enumerate(visible):
        lines += [*_place(path), f"mount --bind {aside}/{number} {_quoted(path)}",
                  f"mount -o remount,bind,ro {_quoted(path)}"]
    lines += [_cover(checkout / "var"), f"mkdir -p {_quoted(data_dir)}"]
    if own:
        lines += [*_place(own), f"mount --bind {aside}/{len(visible)} {_quoted(own)}"]
    for number, path in enumerate(read, len(kept) - len(read)):
        lines += [*_place(path), f"mount --bind {aside}/{number} {_quoted(path)}",
                  f"mount -o remount,bind,ro {_quoted(path)}"]
    if (checkout / ".env").exists():
        lines.append(f"mount --bind /dev/null {_quoted(checkout / '.env')}")
    return [*lines, f"umount -R {aside}"]


def _cover(path: Path, mode: str = "0755") -> str:
    return f"mount -t tmpfs -o mode={mode},nosuid,nodev tmpfs {_quoted(path)}"


def _visible(environ: Mapping[str, str], process: Process) -> list[Path]:
    """The checkout, and what else the process needs of directories that may be closed."""
    named = [Path(environ[name]) for name in _CERTIFICATES if environ.get(name)]
    if process is PROCESSES["guest-gateway"] and environ.get("SVC_LLM_CONFIG"):
        # The directory: a file that is put in its place is to be seen.
        named.append(Path(environ["SVC_LLM_CONFIG"]).parent)
    others = [
        path for path in (Path(sys.base_prefix), *named) if path.exists()
        and (_closed_above(path) or path.is_relative_to(_TMP)) and not path.is_relative_to(ROOT)
    ]
    return [ROOT, *dict.fromkeys(others)]


def _closed_above(path: Path) -> Path | None:
    """The topmost directory above `path` that other accounts may not enter."""
    for parent in reversed(path.parents):
        if not os.stat(parent).st_mode & 0o001:
            return parent
    return None


def _place(path: Path) -> list[str]:
    if path.is_dir():
        return [f"mkdir -p {_quoted(path)}"]
    return [f"mkdir -p {_quoted(path.parent)}", f"touch {_quoted(path)}"]


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))
