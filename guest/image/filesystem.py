"""Makes the ext4 image of the guest's root file system from a directory, sparse, without mounting
anything."""
from pathlib import Path

from guest.image.commands import run

ROOTFS_BYTES = 16 * 1024 ** 3
# Named one by one because the defaults of newer tools include features that the guest's kernel does
# not know.
_FEATURES = (
    "none,has_journal,ext_attr,resize_inode,dir_index,filetype,extent,64bit,flex_bg,sparse_super,"
    "large_file,huge_file,dir_nlink,extra_isize,metadata_csum"
)
# The journal is written round and round, and what it has covered once stays in every sandbox's
# overlay.
_JOURNAL_MB = 16
# Growing a mounted file system takes a transaction as large as the room reserved for its
# descriptors, and a transaction is a quarter of the journal at most. The default, 1024 blocks for
# growth by the thousand, does not fit; 1 TiB does.
_GROWS_TO_BLOCKS = 1024 ** 4 // 4096


def mke2fs_argv(source: Path, image: Path) -> list[str]:
    """The command that makes `image` with the content of `source`."""
    return [
        "mke2fs", "-q", "-F", "-t", "ext4", "-O", _FEATURES, "-m", "0", "-J", f"size={_JOURNAL_MB}",
        "-E", "root_owner=0:0,lazy_itable_init=1,lazy_journal_init=1,"
        f"resize={_GROWS_TO_BLOCKS}", "-d",
        str(source),
        str(image)
    ]


def make_filesystem(source: Path, image: Path) -> None:
    """Write the 16 GiB image; it occupies only what the files need."""
    with image.open("wb") as file:
        file.truncate(ROOTFS_BYTES)
    run(mke2fs_argv(source, image), timeout_s=900)
