"""What of a template's id is its name, and what a version."""
import pytest

from services.errors import InvalidRequest
from services.templates.names import check_version, parse


@pytest.mark.parametrize(("text", "meant"), [
    ("react", ("react", None)),
    ("react-vite", ("react-vite", None)),
    ("py_3.11", ("py_3.11", None)),
    ("react-v2", ("react", "2")),
    ("react-vite-v1.0.0-v2", ("react-vite", "1.0.0-v2")),
    ("react-v2026-11-21", ("react", "2026-11-21")),
    ("react-v", ("react-v", None)),
    ("v2", ("v2", None)),
])
def test_what_is_a_name_and_what_a_version(text, meant):
    reference = parse(text)
    assert (reference.name, reference.version) == meant and str(reference) == text


@pytest.mark.parametrize("text", ["", "-x", "_x", "a b", "ü", "x" * 65, "a\n", "x-v1!"])
def test_what_can_be_neither_is_refused(text):
    with pytest.raises(InvalidRequest):
        parse(text)


@pytest.mark.parametrize("version", ["", "v1", "x", "1/2", "1" * 33, "1\n"])
def test_what_no_version_can_be_is_refused(version):
    with pytest.raises(InvalidRequest):
        check_version(version)
