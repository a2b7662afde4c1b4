"""Makes the small initrd of kernels that have their drivers as modules: BusyBox, those modules, and
one script."""
import os
import shutil
import stat
from pathlib import Path

from guest.image.commands import run
from guest.image.errors import ImageError

_DIRECTORIES = ("bin", "dev", "proc", "sys", "root")


def init_script(modules: tuple[str, ...]) -> str:
    """The script the kernel runs first: load the modules in this order, mount the disk, hand over
    to systemd."""
    loads = "\n".join(f"modprobe {name}" for name in modules)
    return f"""#!/bin/sh
mount -t devtmpfs none /dev
mount -t proc none /proc
mount -t sysfs none /sys
{loads}
tries=0
until [ -b /dev/vda ] || [ $tries -ge 200 ]; do sleep 0.05; tries=$((tries + 1)); done
mount -t ext4 -o rw,noinit_itable /dev/vda /root || exec sh
mount --move /dev /root/dev
umount /sys /proc
exec switch_root /root /sbin/init
"""


def loadable(builtin: str, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """Those of `wanted` that are not in modules.builtin, which lists what the kernel has in
    itself."""
    in_kernel = {_module_name(path) for path in builtin.split()}
    return tuple(name for name in wanted if name not in in_kernel)


def module_files(dependencies: str, wanted: tuple[str, ...]) -> list[str]:
    """The files of `wanted` and all they depend on, from modules.dep; raises ImageError for an
    unknown one."""
    table = {}
    for line in dependencies.splitlines():
        path, _, needs = line.partition(":")
        table[path] = needs.split()
    by_name = {_module_name(path): path for path in table}
    files: dict[str, None] = {}
    for name in wanted:
        if name not in by_name:
            raise ImageError(
                f"the kernel has no module {name}; correct the list of initrd modules in distros.py"
            )
        for path in [by_name[name], *table[by_name[name]]]:
            files[path] = None
    return list(files)


def _module_name(path: str) -> str:
    return Path(path).name.split(".")[0].replace("-", "_")


def newc_entry(name: str, mode: int, content: bytes, number: int) -> bytes:
    """One file of a cpio archive in the format the kernel unpacks."""
    encoded = name.encode() + b"\0"
    fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(encoded), 0)
    header = b"070701" + b"".join(b"%08X" % field for field in fields) + encoded
    return _padded(header) + _padded(content)


def make_initrd(rootfs: Path, modules: tuple[str, ...], target: Path) -> None:
    """Write the initrd for the kernel installed in `rootfs`."""
    release = next((rootfs / "lib" / "modules").iterdir()).name
    modules_dir = Path("lib") / "modules" / release
    tree = target.with_suffix(".tree")
    for directory in _DIRECTORIES:
        (tree / directory).mkdir(parents=True)
    shutil.copy(rootfs / "bin" / "busybox", tree / "bin" / "busybox")
    dependencies, builtin = ((rootfs / modules_dir / name).read_text()
                             for name in ("modules.dep", "modules.builtin"))
    needed = loadable(builtin, modules)
    for file in module_files(dependencies, needed):
        (tree / modules_dir / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(rootfs / modules_dir / file, tree / modules_dir / file)
    run(["depmod", "-b", tree, release], timeout_s=60)
    applets = run(["chroot", tree, "/bin/busybox", "--list"], timeout_s=20).split()
    for applet in applets:
        if applet != "busybox":
            os.symlink("busybox", tree / "bin" / applet)
    (tree / "init").write_text(
        "#!/bin/sh\nexport PATH=/bin\n" + init_script(needed).partition("\n")[2]
    )
    (tree / "init").chmod(0o755)
    target.write_bytes(_archive(tree))
    shutil.rmtree(tree)


def _archive(tree: Path) -> bytes:
    entries = []
    for number, path in enumerate(sorted(tree.rglob("*")), start=1):
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            content = os.readlink(path).encode()
        else:
            content = path.read_bytes() if stat.S_ISREG(mode) else b""
        entries.append(newc_entry(str(path.relative_to(tree)), mode, content, number))
    return b"".join(entries) + newc_entry("TRAILER!!!", 0, b"", 0)


def _padded(content: bytes) -> bytes:
    return content + b"\0" * (-len(content) % 4)
