"""What the node is told by the builder of the presets image, and how `make status` shows it."""
import sys
from datetime import datetime, timedelta, timezone

import pytest

from bin import status
from bin.stack.site import ROOT
from config.settings import Settings
from models.states import WarmImageState
from nodeworker.hypervisor.driver import DriverError
from nodeworker.hypervisor.qemu.images.build_presets_image import build_presets_image
from services.hosts.warm_images import WarmImageView

PRESENT = datetime(2026, 11, 24, 12, 0, 0, tzinfo=timezone.utc)


@pytest.fixture
def builder(tmp_path, monkeypatch):
    """Makes a program that stands in for `guest.presets.build` and does what the code says; gives
    the file in which its arguments are."""
    arguments = tmp_path / "arguments"

    def stand_in(code):
        program = tmp_path / "python"
        program.write_text(
            f"#!{sys.executable}\nimport sys, time\nsys.path.insert(0, {str(ROOT)!r})\n"
            "from pathlib import Path\nfrom guest.image.commands import say\n"
            f"Path({str(arguments)!r}).write_text('\\n'.join(sys.argv[1:]))\n{code}\n")
        program.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(program))
        return arguments

    return stand_in


@pytest.fixture
def settings(tmp_path):
    return Settings(image_dir=tmp_path / "images", presets=("pi", "codex"), disk_floor_mb=77)


def test_what_it_does_is_told_and_nothing_else(builder, settings):
    arguments = builder("""
say("1/6 fetching opencode 1.18.33")
print("[image] a line without a time", flush=True)
print("12:00:00 [image] 12:00:00 somewhere else", file=sys.stderr, flush=True)
say("NOTICE: opencode failed: its registry does not answer")
say("6/6 writing the file system")
""")
    told = []
    build_presets_image(settings, told.append)
    assert told == ["presets: 1/6 fetching opencode 1.18.33",
                    "presets: 6/6 writing the file system"]
    assert arguments.read_text().split("\n") == [
        "-m", "guest.presets.build", f"--image-dir={settings.image_dir}", "--presets=pi,codex",
        "--keep-free-mb=77"]


def test_it_is_told_while_it_is_done(builder, settings, tmp_path):
    """The builder goes on only when the first line has been heard."""
    heard = tmp_path / "heard"
    builder(f"""
say("first")
while not Path({str(heard)!r}).exists():
    time.sleep(0.01)
say("second")
""")
    told = []

    def progress(text):
        told.append(text)
        heard.touch()

    build_presets_image(settings, progress)
    assert told == ["presets: first", "presets: second"]


def test_its_last_words_are_the_reason_when_it_fails(builder, settings):
    builder("""
for number in range(9):
    say(f"line {number}.")
print("[image] ERROR: no guest image: build it with `make image`", file=sys.stderr)
sys.exit(1)
""")
    with pytest.raises(DriverError) as failed:
        build_presets_image(settings, lambda _: None)
    said = str(failed.value)
    assert said.startswith("the presets image was not built: ")
    assert said.endswith("build it with `make image`")
    assert "line 8." in said and "line 0." not in said


def view(state, **changed):
    return WarmImageView(**{
        "node_id": "n1", "vcpus": 1, "mem_mb": 1024, "presets": True, "state": state, "phase": "",
        "since": PRESENT - timedelta(seconds=4), "began_at": None, "took_s": None, "attempts": 0,
        "error": None, "next_try_at": None, "image": "", **changed})


@pytest.fixture(autouse=True)
def present(monkeypatch):
    """When it is looked at."""
    monkeypatch.setattr(status, "now", lambda: PRESENT)


def test_status_shows_how_far_the_build_is_as_the_documentation_has_it():
    baked = view(WarmImageState.BAKED, presets=False)
    building = view(WarmImageState.BAKING, phase="presets: 3/6 fetching codex 0.169.0",
                    began_at=PRESENT - timedelta(seconds=9))
    shown = [f"  {status.describe(each)}" for each in (baked, building)]
    assert shown[1].split() == ("small 1 vCPU 1024 MB presets baking presets: 3/6 fetching codex"
                                " 0.169.0 for 4 s, 9 s in all").split()
    assert "\n".join(shown) in (ROOT / "docs/presets.md").read_text()


@pytest.mark.parametrize(("found", "end"), [
    (view(WarmImageState.QUEUED), "queued  for 4 s, one is baked at a time"),
    (view(WarmImageState.BAKED, took_s=18.4), "baked   in 18 s"),
    (view(WarmImageState.FAILED, error="no guest image", next_try_at=PRESENT + timedelta(
        seconds=60)), "failed  no guest image; tried again in 60 s"),
    (view(WarmImageState.FAILED, error="no guest image"), "failed  no guest image")])
def test_status_shows_what_comes_next(found, end):
    shown = status.describe(found)
    assert shown.startswith("small      1 vCPU   1024 MB  presets  ") and shown.endswith(end)


def test_a_plain_image_is_not_shown_as_one_with_presets():
    assert "presets" not in status.describe(view(WarmImageState.QUEUED, presets=False))
