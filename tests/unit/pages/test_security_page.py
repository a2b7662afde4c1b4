"""docs/security.md: every section says what is defended, how, by which tests and what is not, and
names nothing that does not exist."""
import re

import pytest

from bin.stack.site import ROOT
from config.settings import Settings

PAGE = (ROOT / "docs" / "security.md").read_text()
SECTIONS = dict(re.findall(r"^## (.+)\n((?:(?!^## ).*\n)*)", PAGE, re.MULTILINE))
PARTS = ("**What is defended.**", "**How.**", "**Tests.**", "**What is not.**")
ROOMS = "app|bench|bin|config|guest|models|nodeworker|sdk|services|tasks"


@pytest.mark.parametrize("name", SECTIONS)
def test_a_section_has_its_four_parts_in_order(name):
    places = [SECTIONS[name].find(part) for part in PARTS]
    assert -1 not in places and places == sorted(places)


@pytest.mark.parametrize("name", SECTIONS)
def test_its_tests_exist(name):
    tests = SECTIONS[name].split("**Tests.**")[1].split("**What is not.**")[0]
    named = re.findall(r"`([\w/]+\.py)`", tests)
    assert named, "no test holds it"
    assert [path for path in named if not (ROOT / "tests" / path).is_file()] == []
    for function in re.findall(r"`(test_\w+)`", tests):
        assert any(f"def {function}(" in (ROOT / "tests" / path).read_text() for path in named)


def test_every_setting_and_every_file_of_ours_that_is_named_exists():
    assert set(re.findall(r"SVC_([A-Z0-9_]+)", PAGE)) <= {
        name.upper() for name in Settings.__dataclass_fields__}
    files = re.findall(rf"`((?:{ROOMS})/[\w/]+\.py)`", PAGE)
    assert [path for path in files if not (ROOT / path).is_file()] == []
