"""What a process sees of the files of its host, wherever the checkout lies."""
import secrets
import subprocess
from pathlib import Path

import pytest

from bin.stack.supervision.file_views import view_of


@pytest.fixture
def checkout(tmp_path):
    """A checkout below a closed directory, itself below /tmp, with a stack and secrets in it."""
    closed = tmp_path / "closed"
    for directory in ("svc/var/keys", "svc/var/node", "svc/app", "other"):
        (closed / directory).mkdir(parents=True)
    for name in ("svc/.env", "svc/app/code.py", "svc/var/stack.env", "svc/var/keys/key",
                 "other/secret"):
        (closed / name).write_text("content")
    (tmp_path / "beside").write_text("content")
    closed.chmod(0o700)
    return closed / "svc"


def look(lines, script):
    """What a shell prints after it has taken the view, in mounts of its own."""
    text = "\n".join(["set -eu", *lines, script])
    return subprocess.run(["unshare", "--mount", "--propagation", "slave", "sh", "-c", text],
                          text=True, capture_output=True, check=True).stdout.split()


def test_it_sees_the_code_its_own_directory_and_nothing_else(checkout, tmp_path):
    own = checkout / "var" / "keys"
    lines = view_of([checkout], checkout, own, checkout / "var")
    # A directory still lists what is covered in it; reading it gives nothing.
    shown = look(lines, f"find {tmp_path} -type f -size +0; cat {checkout}/.env")
    assert sorted(shown) == sorted(map(str, (checkout / "app/code.py", own / "key")))
    assert (checkout / ".env").read_text() == "content", "only the view is changed"


def test_it_writes_its_own_directory_and_tmp_and_nothing_else(checkout):
    own, name = checkout / "var" / "keys", f"new-{secrets.token_hex(8)}"
    tries = " ".join(f"{place}/{name}" for place in (own, checkout / "app", checkout, "/tmp"))
    lines = view_of([checkout], checkout, own, checkout / "var")
    shown = look(lines, f'for path in {tries}; do (: > "$path") 2> /dev/null && echo "$path"; done;'
                        ' true')
    assert shown == [str(own / name), f"/tmp/{name}"]
    assert (own / name).exists() and not Path("/tmp", name).exists()


def test_without_a_directory_of_its_own_it_sees_none(checkout):
    lines = view_of([checkout], checkout, None, checkout / "var")
    assert look(lines, f"find {checkout}/var -mindepth 1") == []


def test_what_lies_below_mnt_is_kept_aside_elsewhere():
    lines = view_of([Path("/mnt/svc")], Path("/mnt/svc"), None, Path("/mnt/svc/var"))
    assert not any(line.endswith(" tmpfs /mnt") for line in lines) and "umount -R /run" in lines
