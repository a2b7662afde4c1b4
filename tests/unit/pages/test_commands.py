"""Commands on the pages can be typed as they stand: the virtual environment's Python is called with
the settings of the installation, and every `make` and every command of `bin/svc-admin` is one."""
import re

import click
import pytest

from app.operator.__main__ import main
from bin.stack.site import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# Bare, it takes the defaults, in whatever directory it is typed.
BARE = re.compile(r"(?<!bin\.run )(?<!\.venv/bin/)\bpython -m \S+")
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.fixture(scope="module", params=PAGES, ids=lambda page: page.name)
def text(request):
    """A page without its line breaks."""
    return " ".join(request.param.read_text().split())


def test_no_page_calls_a_module_without_the_settings(text):
    assert BARE.findall(text) == []


def test_what_is_called_with_the_settings_is_there(text):
    for module in re.findall(r"bin\.run python -m ([\w.]+)", text):
        path = ROOT / module.replace(".", "/")
        assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), module


def test_every_target_of_make_is_one(text):
    named = re.findall(r"`make ([a-z-]+)", text)
    assert [name for name in named if name not in TARGETS] == []


def test_every_command_of_the_operator_is_one(text):
    """With the first word below a group."""
    named = re.findall(r"svc-admin ([a-z][a-z-]+)(?: ([a-z-]+))?", text)
    unknown = [name for name, below in named if not _is_command(name, below)]
    assert unknown == []


def _is_command(name, below):
    command = main.commands.get(name)
    return command is not None and (
        not isinstance(command, click.Group) or not below or below in command.commands)
