"""The identity host: sign in, sign out, user tokens, public keys."""
import dataclasses
import time
from concurrent.futures import ThreadPoolExecutor

import argon2
import jwt
import pytest
from jwt.algorithms import OKPAlgorithm

from app.identity.local_authority import LocalAuthority
from app.identity.sessions import COOKIE
from app.identity.signing_keys import KeyDirectory
from models.database import connection
from models.users import User
from services.accounts import tokens, users
from services.accounts.sign_in_throttle import PAIR_TRIES, WINDOW

APP = {"appId": "dashboard"}


@pytest.fixture
def browser(edge):
    """A browser of its own, with its own cookies."""
    return edge.identity.application.test_client()


def sign_in(edge, browser, name="alice", **changes):
    body = {
        "email": edge.people[f"SVC_{name.upper()}_EMAIL"],
        "password": edge.people[f"SVC_{name.upper()}_PASSWORD"]
    }
    return browser.post("/login", json=body | changes)


def test_signing_in_sets_a_cookie_that_scripts_cannot_read(edge, browser):
    answer = sign_in(edge, browser)
    assert answer.status_code == 200
    assert answer.json == {
        "id": edge.user("alice").id, "email": edge.people["SVC_ALICE_EMAIL"], "plan": "legacy_pro"
    }
    cookie = answer.headers["Set-Cookie"]
    assert cookie.startswith(f"{COOKIE}=") and "HttpOnly" in cookie and "SameSite=Lax" in cookie


def test_the_address_is_not_case_sensitive(edge, browser):
    assert sign_in(edge, browser,
                   email=f" {edge.people['SVC_ALICE_EMAIL'].upper()} ").status_code == 200


@pytest.mark.parametrize("changes", [
    {"password": "wrong"},
    {"email": "nobody@example.test"},
    {"email": "not an address"},
    {"email": "alice@"},
])
def test_wrong_is_401_and_does_not_say_what_was_wrong(edge, browser, changes):
    answer = sign_in(edge, browser, **changes)
    assert answer.status_code == 401 and COOKIE not in answer.headers.get("Set-Cookie", "")
    assert answer.json == {"error": "Wrong e-mail address or password."}


@pytest.mark.parametrize(
    "body", [{}, {"email": 5, "password": "x"}, {"email": "a@b", "password": {"$ne": 1}}, [], "x"])
def test_a_bad_body_is_400(browser, body):
    assert browser.post("/login", json=body).status_code == 400


def test_a_form_of_another_site_is_415(edge, browser):
    answer = browser.post("/login", data={"email": "a@b", "password": "x"})
    assert answer.status_code == 415


def test_a_token_acts_as_the_user_and_ends(edge, browser):
    sign_in(edge, browser)
    answer = browser.post("/token", json=APP)
    assert answer.status_code == 200 and answer.json.keys() == {"token", "expiresAt"}
    left_s = answer.json["expiresAt"] / 1000 - time.time()
    assert 0 < left_s <= edge.settings.user_jwt_s
    headers = {"Authorization": f"Bearer {answer.json['token']}"}
    assert edge.api.get("/v1/sandboxes", headers=headers).status_code == 200


def test_a_token_verifies_against_the_published_keys(edge, browser):
    sign_in(edge, browser)
    token = browser.post("/token", json=APP).json["token"]
    published = {key["kid"]: key for key in browser.get("/.well-known/jwks.json").json["keys"]}
    key = published[jwt.get_unverified_header(token)["kid"]]
    assert key["use"] == "sig" and key["alg"] == "EdDSA" and "d" not in key
    claims = jwt.decode(token, OKPAlgorithm.from_jwk(key), algorithms=["EdDSA"], audience="svc",
                        issuer=edge.settings.auth_url)
    assert claims["sub"] == edge.user(
        "alice").id and claims["appId"] == "dashboard" and claims["jti"]
    assert claims["exp"] - claims["iat"] == edge.settings.user_jwt_s


@pytest.mark.parametrize(
    "body", [{}, {"appId": ""}, {"appId": 5}, {"appId": "x" * 129}, {"appId": "x", "more": 1}, []])
def test_a_token_needs_an_app(edge, browser, body):
    sign_in(edge, browser)
    assert browser.post("/token", json=body).status_code == 400


@pytest.mark.parametrize("cookie", ["", "nonsense", "WyJ4Il0.x.y", "a" * 3000, "W10.aaaaaa.bbbb"])
def test_no_token_without_a_session(browser, cookie):
    browser.set_cookie(COOKIE, cookie)
    assert browser.post("/token", json=APP).status_code == 401


def test_an_api_key_is_no_session(edge, browser):
    assert browser.post("/token", json=APP, headers=edge.key(edge.user("alice"))).status_code == 401


def test_after_signing_out_there_is_no_session(edge, browser):
    sign_in(edge, browser)
    assert browser.post("/logout").status_code == 204
    assert browser.post("/token", json=APP).status_code == 401
    assert browser.post("/logout").status_code == 204


def test_a_new_password_ends_the_sessions(edge, browser):
    user = users.create("changing@example.test", "first password", users.Plan.FREE)
    body = {"email": user.email, "password": "first password"}
    assert browser.post("/login", json=body).status_code == 200
    assert browser.post("/token", json=APP).status_code == 200
    users.set_password(user, "second password")
    assert browser.post("/token", json=APP).status_code == 401
    assert browser.post("/login", json=body).status_code == 401
    assert browser.post("/login", json=body | {"password": "second password"}).status_code == 200


def test_an_account_that_does_not_exist_costs_as_much_as_one_that_does():
    assert not argon2.PasswordHasher().check_needs_rehash(users.NOBODY), "its cost is another"


def test_a_password_is_stored_as_a_slow_hash(edge):
    made = users.create("slow@example.test", "the only password", users.Plan.FREE)
    with connection():
        stored = User.get_by_id(made.id).password_hash
    assert stored.startswith("$argon2id$") and "the only password" not in stored
    assert not argon2.PasswordHasher().check_needs_rehash(stored)


@pytest.mark.slow
def test_guessing_is_slowed_down_for_one_account_only(edge, browser):
    users.create("guessed@example.test", "the right password", users.Plan.FREE)
    body = {"email": "guessed@example.test", "password": "a wrong password"}
    with ThreadPoolExecutor(4) as pool:
        tries = [pool.submit(edge.identity.application.test_client().post, "/login", json=body)
                 for _ in range(PAIR_TRIES)]
        assert {attempt.result().status_code for attempt in tries} == {401}
    answer = browser.post("/login", json=body | {"password": "the right password"})
    assert answer.status_code == 429 and 0 < int(
        answer.headers["Retry-After"]) <= WINDOW.total_seconds()
    assert sign_in(edge, browser).status_code == 200


def test_a_rotated_key_signs_and_the_old_one_still_verifies(edge, browser):
    sign_in(edge, browser)
    before = browser.post("/token", json=APP).json["token"]
    keys = KeyDirectory(edge.settings.signing_keys_dir)
    old = keys.get_signing().kid
    time.sleep(1.1)
    new = keys.add("EdDSA")
    after = browser.post("/token", json=APP).json["token"]
    assert jwt.get_unverified_header(after)["kid"] == new != old
    for token in (before, after):
        assert edge.api.get("/v1/sandboxes",
                            headers={"Authorization": f"Bearer {token}"}).status_code == 200
    assert {key["kid"] for key in browser.get("/.well-known/jwks.json").json["keys"]} == {old, new}


def test_other_algorithms_are_possible_but_only_those_configured(edge, tmp_path):
    elsewhere = dataclasses.replace(edge.settings, signing_keys_dir=tmp_path)
    keys = KeyDirectory(tmp_path)
    keys.ensure("ES256")
    minted = tokens.mint_user_token(elsewhere, keys.get_signing(), edge.user("alice"), "x")
    with pytest.raises(tokens.Unauthenticated):
        tokens.verify(elsewhere, LocalAuthority(elsewhere), minted.text)
    both = dataclasses.replace(elsewhere, jwt_algorithms=("EdDSA", "ES256"))
    assert tokens.verify(both, LocalAuthority(both), minted.text).subject == edge.user("alice").id


def test_public_answers_may_be_cached_and_others_not(edge, browser):
    assert browser.get("/tokens/revoked").headers["Cache-Control"] == "public, max-age=10"
    assert "public" in browser.get("/.well-known/jwks.json").headers["Cache-Control"]
    sign_in(edge, browser)
    assert browser.post("/token", json=APP).headers["Cache-Control"] == "no-store"
