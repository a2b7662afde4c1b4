"""What is taken of a builder's tar, which a stranger made."""
import io
import subprocess
import tarfile

import pytest

from guest.agent import archives
from guest.client.errors import AgentError
from nodeworker.deploys.storing import store
from services.deploys.projects.manifest import BadProject
from services.deploys.version_prefixes import list_key

PREFIX = "apps/app_x/v1-1/"


class Kept:
    """Keeps objects as the store would."""

    def __init__(self):
        self.objects, self.headers = {}, {}

    def put_stream(self, key, chunks, headers=None):
        self.objects[key], self.headers[key] = b"".join(chunks), headers
        return len(self.objects[key])


def tar(*entries):
    """A tar of (name, content) files, and of TarInfos as they are."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as archive:
        for entry in entries:
            if isinstance(entry, tarfile.TarInfo):
                # Not by `addfile`, which refuses what a guest may say.
                archive.offset += archive.fileobj.write(entry.tobuf(archive.format))
                continue
            info = tarfile.TarInfo(entry[0])
            info.size = len(entry[1])
            archive.addfile(info, io.BytesIO(entry[1]))
    content = held.getvalue()
    return [content[at:at + 700] for at in range(0, len(content), 700)]


def special(name, kind, target=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def sized(name, size, kind=tarfile.REGTYPE):
    info = special(name, kind)
    info.size = size
    return info


def stored(*entries, files_most=100, bytes_most=1 << 20):
    kept = Kept()
    listed = store(kept, PREFIX, tar(*entries), files_most=files_most, bytes_most=bytes_most)
    return kept, listed


INDEX = ("./index.html", b"<h1>hello</h1>")


def test_plain_files_are_stored_with_type_and_age_and_the_list_comes_last():
    kept, listed = stored(special(".", tarfile.DIRTYPE), INDEX, ("assets/a.mjs", b"x" * 2000))
    assert [file.path for file in listed] == ["assets/a.mjs", "index.html"]
    assert kept.objects[f"{PREFIX}files/index.html"] == INDEX[1]
    assert kept.headers[f"{PREFIX}files/assets/a.mjs"] == {
        "ContentType": "text/javascript", "CacheControl": "public, max-age=31536000, immutable"}
    assert kept.headers[f"{PREFIX}files/index.html"]["CacheControl"] == (
        "public, max-age=60, must-revalidate")
    assert list(kept.objects)[-1] == list_key(PREFIX)


@pytest.mark.parametrize("entry", [
    special("link", tarfile.SYMTYPE, "/etc/passwd"), special("hard", tarfile.LNKTYPE, "index.html"),
    special("null", tarfile.CHRTYPE), special("disk", tarfile.BLKTYPE),
    special("pipe", tarfile.FIFOTYPE), ("../out", b"x"), ("a/../../out", b"x"), ("/etc/x", b"x"),
    (".env", b"SECRET"), (".git/config", b"x"), ("a\nb", b"x"), ("a\\b", b"x"),
    ("x" * 600, b"x"),
])
def test_what_is_no_plain_file_or_has_no_plain_name_is_left_out(entry):
    kept, listed = stored(entry, INDEX)
    assert [file.path for file in listed] == ["index.html"]
    assert set(kept.objects) == {f"{PREFIX}files/index.html", list_key(PREFIX)}


def test_a_well_known_directory_is_served():
    _, listed = stored(INDEX, (".well-known/security.txt", b"x"))
    assert ".well-known/security.txt" in [file.path for file in listed]


@pytest.mark.parametrize(("entries", "limits", "sentence"), [
    ([("other.html", b"x")], {}, "no index.html"),
    ([INDEX, ("a", b"x" * 3000)], {"bytes_most": 2000}, "larger than"),
    ([INDEX, ("a", b""), ("b", b"")], {"files_most": 2}, "more than 2 files"),
    ([INDEX, ("a", b"x"), ("a/b", b"x")], {}, "both a file and a directory"),
    ([INDEX, *[special(f"d{n}", tarfile.DIRTYPE) for n in range(9)]], {"files_most": 2},
     "more than 2 files"),
    ([INDEX, *[(f".{n}", b"x" * 1000) for n in range(5)]], {"bytes_most": 1000}, "larger than"),
    ([INDEX, sized("x", -512)], {}, "broken"),
])
def test_an_output_that_cannot_be_served_is_refused(entries, limits, sentence):
    with pytest.raises(BadProject, match=sentence):
        stored(*entries, **limits)


WHOLE = b"".join(tar(INDEX, ("later.html", b"x" * 600)))
HEADER, END = 1024, 1024 + 512 + 1024


@pytest.mark.parametrize("sent", [
    b"no tar at all" * 100, WHOLE[:HEADER + 100] + bytes(1) + WHOLE[HEADER + 101:], WHOLE[:HEADER],
    WHOLE[:HEADER + 300], WHOLE[:END],
], ids=["noise", "a broken header", "cut before a header", "cut in a header", "without its end"])
def test_a_broken_tar_is_refused(sent):
    kept = Kept()
    with pytest.raises(BadProject, match="broken archive"):
        store(kept, PREFIX, [sent], files_most=9, bytes_most=9999)
    assert list_key(PREFIX) not in kept.objects, "without its list a version cannot be published"
    assert len(store(Kept(), PREFIX, [WHOLE], files_most=9, bytes_most=9999)) == 2


@pytest.mark.parametrize("after", [
    [], [sized("d", 1 << 30, tarfile.DIRTYPE)], [sized("l", 1 << 30, tarfile.SYMTYPE)]])
@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.XGLTYPE])
def test_a_header_that_is_long_is_not_read_into_memory(kind, after):
    read = 0

    def endless():
        nonlocal read
        yield b"".join(tar(INDEX, *after, sized("long", 1 << 30, kind)))[:-1024 * 10]
        while True:
            read += 1 << 16
            yield bytes(1 << 16)

    with pytest.raises(BadProject, match="broken|no index"):
        store(Kept(), PREFIX, endless(), files_most=9, bytes_most=8 << 30)
    assert read < 1 << 20


def test_of_an_entry_as_much_may_be_said_as_paths_may_have():
    longest = special("p" * 4095, tarfile.SYMTYPE, "t" * 4095)
    _, listed = stored(longest, INDEX)
    assert [file.path for file in listed] == ["index.html"]
    with pytest.raises(BadProject, match="broken archive"):
        stored(special("p" * 20_000, tarfile.SYMTYPE, "t"), INDEX)


def packed(directory):
    """What the agent sends of a directory."""
    return subprocess.run([*archives._CREATE, f"--directory={directory}", "."], check=True,
                          capture_output=True).stdout


@pytest.mark.parametrize("name", ["film.mp4", ".hidden"])
def test_a_file_of_50_gb_that_is_all_hole_is_refused_at_once(tmp_path, name):
    (tmp_path / "index.html").write_bytes(b"page")
    with (tmp_path / name).open("wb") as file:
        file.truncate(50 << 30)
    with pytest.raises(BadProject, match="larger than 1024 MB"):
        store(Kept(), PREFIX, [packed(tmp_path)], files_most=9, bytes_most=1 << 30)


def test_small_files_with_holes_are_stored_whole(tmp_path):
    for name in ("index.html", ".hidden", "z"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(1 << 20)
            file.seek(1 << 19)
            file.write(b"page")
    kept = Kept()
    store(kept, PREFIX, [packed(tmp_path)], files_most=9, bytes_most=1 << 30)
    for name in ("index.html", "z"):
        assert kept.objects[f"{PREFIX}files/{name}"] == (tmp_path / name).read_bytes()


def test_what_the_builder_could_not_read_is_told_though_the_archive_looks_whole():
    def broken():
        yield from tar(INDEX)
        raise AgentError("tar could not create the archive")

    with pytest.raises(AgentError):
        store(Kept(), PREFIX, broken(), files_most=9, bytes_most=1 << 20)
