"""What is kept of a variable opens with its secret, at its place, and nowhere else."""
import pytest

from config.settings import Settings
from services.deploys.apps.sealing import seal, unseal
from services.errors import Unavailable

OLD, NEW, BOTH = (Settings(variables_secret=text) for text in ("old", "new", " new, old"))
VALUE = "line one\nline two \u00fc"


@pytest.mark.parametrize(("sealed_with", "opened_with"), [
    (OLD, OLD), (OLD, BOTH), (BOTH, BOTH), (BOTH, NEW)])
def test_the_first_secret_seals_and_each_opens(sealed_with, opened_with):
    sealed = seal(sealed_with, "app/NAME", VALUE)
    assert unseal(opened_with, "app/NAME", sealed) == VALUE
    assert b"line" not in sealed and seal(sealed_with, "app/NAME", VALUE) != sealed


@pytest.mark.parametrize(("place", "secrets", "change"), [
    ("app/OTHER", OLD, 0), ("other/NAME", OLD, 0), ("app/NAME", NEW, 0), ("app/NAME", OLD, 1),
    ("app/NAME", Settings(), 0)])
def test_nothing_else_opens(place, secrets, change):
    sealed = bytearray(seal(OLD, "app/NAME", VALUE))
    sealed[-1] ^= change
    with pytest.raises(Unavailable):
        unseal(secrets, place, bytes(sealed))


def test_without_a_secret_nothing_is_sealed():
    with pytest.raises(Unavailable, match="SVC_VARIABLES_SECRET"):
        seal(Settings(variables_secret=" , "), "app/NAME", VALUE)
