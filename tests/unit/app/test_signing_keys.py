"""The stages of a signing key, what keeps one from going, and which published keys a verifier
takes."""
from datetime import datetime, timedelta, timezone

import pytest

from app.identity.signing_keys import KeyDirectory
from config.settings import SettingsError
from services.accounts.json_web_keys import as_jwk, from_jwk
from services.accounts.key_retirement import blockers

NOW = datetime(2030, 1, 1, tzinfo=timezone.utc)


def stages(keys):
    return [(state.kid, state.stage) for state in keys.list_states()]


def test_a_key_is_published_before_it_signs_and_verifies_afterwards(tmp_path):
    keys = KeyDirectory(tmp_path)
    first = keys.ensure("EdDSA")
    second = keys.add("EdDSA", signs_in_s=3600)
    assert stages(keys) == [(first, "signing"),
                            (second, "published")] and keys.get_signing().kid == first
    assert [key.kid for key in keys.list_public()] == [first, second]
    third = keys.add("ES256")
    assert keys.get_signing().kid == third and keys.get_signing().algorithm == "ES256"
    keys.remove(third)
    (tmp_path / f"{second}.start").write_text("0")
    assert stages(keys) == [(first, "verifying"), (second, "signing")]


def test_ids_sort_by_age_however_quickly_keys_are_made(tmp_path):
    keys = KeyDirectory(tmp_path)
    made = [keys.add("EdDSA") for _ in range(20)]
    assert made == sorted(set(made)) and keys.get_signing().kid == made[-1]


def test_a_removed_key_leaves_nothing(tmp_path):
    keys = KeyDirectory(tmp_path)
    keys.add("EdDSA")
    gone = keys.add("EdDSA", signs_in_s=5)
    keys.remove(gone)
    assert not list(tmp_path.glob(f"{gone}*")) and len(keys.list_public()) == 1


def test_a_lone_key_signs_even_before_its_start(tmp_path):
    keys = KeyDirectory(tmp_path)
    only = keys.add("EdDSA", signs_in_s=3600)
    assert keys.get_signing().kid == only


def test_without_a_key_it_says_what_to_do(tmp_path):
    with pytest.raises(SettingsError, match="ensure"):
        KeyDirectory(tmp_path).get_signing()


@pytest.mark.parametrize("name", ["20300101000000-oldstyle", "brought-along"])
def test_a_key_without_a_start_signs(tmp_path, name):
    keys = KeyDirectory(tmp_path)
    kid = keys.add("EdDSA")
    for half in ("private", "public"):
        (tmp_path / f"{kid}.{half}.pem").rename(tmp_path / f"{name}.{half}.pem")
    (tmp_path / f"{kid}.start").unlink()
    assert keys.get_signing().kid == name


def test_a_start_survives_being_read_while_it_is_broken(tmp_path):
    keys = KeyDirectory(tmp_path)
    kid = keys.add("EdDSA")
    (tmp_path / f"{kid}.start").write_text("nonsense")
    assert stages(keys) == [(kid, "signing")]


OLD, SIGNING, NEXT = "1-old", "2-signing", "3-next"
STARTS = [(OLD, NOW - timedelta(days=9)), (SIGNING, NOW - timedelta(seconds=600)),
          (NEXT, NOW + timedelta(seconds=60))]


@pytest.mark.parametrize(("kid", "live", "user_jwt_s", "wanted"), [
    (SIGNING, {}, 900, ["it signs; rotate first"]),
    (OLD, {}, 900, ["user tokens that it signed are valid for up to 303 s"]),
    (OLD, {}, 500, []),
    (OLD, {OLD: 1}, 500, ["1 service token that it signed would end"]),
    (OLD, {OLD: 2}, 900, ["user tokens that it signed are valid for up to 303 s",
                          "2 service tokens that it signed would end"]),
    (OLD, {"": 1}, 500, ["1 service token that it signed would end"]),
    (OLD, {SIGNING: 5}, 500, []),
    (NEXT, {}, 900, []),
])
def test_what_keeps_a_key_from_going(kid, live, user_jwt_s, wanted):
    assert blockers(kid, STARTS, live, signing=SIGNING, user_jwt_s=user_jwt_s,
                    present=NOW) == wanted


@pytest.mark.parametrize("algorithm", ["EdDSA", "ES256"])
def test_a_published_key_is_read_back(tmp_path, algorithm):
    keys = KeyDirectory(tmp_path)
    keys.add(algorithm)
    key = keys.list_public()[0]
    again = from_jwk(as_jwk(key))
    assert (again.kid, again.algorithm) == (key.kid, algorithm)
    assert (
        again.public.public_numbers() == key.public.public_numbers()
        if algorithm == "ES256"
        else again.public.public_bytes_raw() == key.public.public_bytes_raw()
    )


@pytest.mark.parametrize(
    "changes", [{"alg": "HS256"}, {"alg": "none"}, {"alg": "ES256"}, {"kty": "oct"}, {"kty": "RSA"},
                {"kid": 5}, {"d": "secret"}, {"kid": None}, {"alg": None}])
def test_a_published_key_of_another_kind_is_not_taken(tmp_path, changes):
    keys = KeyDirectory(tmp_path)
    keys.add("EdDSA")
    with pytest.raises(ValueError, match="not a public key"):
        from_jwk({**as_jwk(keys.list_public()[0]), **changes})
