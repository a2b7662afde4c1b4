"""What the presets image is made of, its keys, and how files get into a file system."""
import dataclasses
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from guest.image.errors import ImageError
from guest.presets import SLUGS
from guest.presets.filesystem import read_file, write_trees
from guest.presets.recipe import HERE, PRESETS, describe, image_key, sources

EXACT = re.compile(r"\d+\.\d+\.\d+")


@pytest.mark.parametrize("slug", SLUGS)
def test_every_preset_is_locked_to_exact_versions_and_hashes_of_no_registry(slug):
    package, lock = (path.read_text() for path in PRESETS[slug].recipe)
    dependencies = json.loads(package)["dependencies"]
    assert dependencies and all(EXACT.fullmatch(each) for each in dependencies.values())
    entries = [line for line in lock.splitlines() if re.match(r'    "[^"]+": \["', line)]
    assert len(entries) >= len(dependencies)
    assert all('", "", {' in line and '"sha512-' in line for line in entries)
    assert "://" not in lock
    for name, version in dependencies.items():
        assert f'"{name}@{version}"' in lock


def test_the_web_ui_needs_the_four_agents():
    assert set(PRESETS["lfg"].needs) == set(SLUGS) - {"lfg"}


def test_presets_json_says_what_is_there_and_what_is_not():
    ready = describe(PRESETS["codex"], None)
    assert ready["state"] == "ready" and EXACT.fullmatch(ready["version"]) and ready["needsNode"]
    assert ready["bins"]["codex"].startswith("codex/node_modules/") and ready["reason"] == ""
    failed = describe(PRESETS["claude"], "its registry is silent")
    assert (failed["state"], failed["reason"]) == ("failed", "its registry is silent")


def test_the_key_follows_base_choice_and_every_file_but_no_order(monkeypatch, tmp_path):
    key = image_key("base-1", ["pi", "codex"])
    assert key.startswith("base-1-p") and key == image_key("base-1", ["codex", "pi"])
    assert key not in (image_key("base-2", ["pi", "codex"]), image_key("base-1", ["pi"]))
    assert HERE / "pi" / "bun.lock" in sources() and HERE / "build.py" in sources()
    changed = tmp_path / "presets"
    shutil.copytree(HERE, changed)
    (changed / "pi" / "bun.lock").write_text("changed")
    monkeypatch.setattr("guest.presets.recipe.HERE", changed)
    assert image_key("base-1", ["pi", "codex"]) != key


def test_what_is_installed_is_installed_again_only_when_its_own_recipe_changes(tmp_path):
    shutil.copytree(HERE / "pi", tmp_path / "pi")
    preset = dataclasses.replace(PRESETS["pi"], recipes=tmp_path)
    assert preset.key == PRESETS["pi"].key
    with (tmp_path / "pi" / "bun.lock").open("a") as lock:
        lock.write("\n")
    assert preset.key != PRESETS["pi"].key


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """A small file system with one directory of its own."""
    source, made = tmp_path / "source", tmp_path / "image.raw"
    (source / "opt/svc").mkdir(parents=True)
    (source / "opt/svc/there").write_text("before")
    with made.open("wb") as file:
        file.truncate(64 * 1024 ** 2)
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-E", "root_owner=0:0", "-d", source, made],
                   check=True)
    return made


def test_directories_are_written_as_roots_with_modes_links_and_odd_names(image, tmp_path):
    tree = tmp_path / "tree"
    (tree / "deep/er name").mkdir(parents=True)
    (tree / "deep/er name/big").write_bytes(bytes(range(256)) * 20_000)
    (tree / "run").write_text("#!/bin/sh\n")
    (tree / "run").chmod(0o755)
    write_trees(image, {"/opt/svc/presets": tree}, tmp_path / "script",
                links={"/opt/svc/presets/start": "deep/start"})
    read_file(image, "/opt/svc/presets/deep/er name/big", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == (tree / "deep/er name/big").read_bytes()
    read_file(image, "/opt/svc/there", tmp_path / "there")
    assert (tmp_path / "there").read_text() == "before"

    def stat(path):
        return subprocess.run(["debugfs", "-R", f"stat {path}", image], capture_output=True,
                              text=True, check=True).stdout

    assert re.search(r"User: +0 +Group: +0 ", stat("/opt/svc/presets/run"))
    assert re.search(r"regular +Mode: +0755", stat("/opt/svc/presets/run"))
    assert 'dest: "deep/start"' in stat("/opt/svc/presets/start")


def test_what_cannot_be_written_is_an_error(image, tmp_path):
    tree = tmp_path / "tree"
    tree.mkdir()
    with pytest.raises(ImageError, match="missing"):
        write_trees(image, {"/opt/missing/presets": tree}, tmp_path / "script", links={})
    (tree / 'a"quote').touch()
    with pytest.raises(ImageError, match="cannot be written"):
        write_trees(image, {"/opt/svc/presets": tree}, tmp_path / "script", links={})
    with pytest.raises(ImageError, match="holds no"):
        read_file(image, "/opt/svc/nothing", tmp_path / "copy")
