"""Who may call which route: the table of accepted credentials, and every way in which a credential
can be bad."""
import base64
import json
import time

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from flask import Flask

from app import wiring
from app.http import credentials as auth
from app.http import errors, request_ids
from app.http.credentials import ADMIN, API_KEY, PUBLIC, SERVICE, SESSION, USER_JWT, accepted_by
from models.database import connection, now
from models.users import ApiKey, ServiceToken, User
from services.accounts import api_keys, tokens

SANDBOXES = "/v1/sandboxes"
KEYS = "/v1/api-keys"
PUBLIC_EVERYWHERE = ("/health", "/openapi.json", "/docs")


def rules(client):
    for rule in client.application.url_map.iter_rules():
        yield rule.rule, accepted_by(client.application.view_functions[rule.endpoint])


def test_every_route_says_what_it_takes(edge):
    for client in (edge.api, edge.identity):
        for rule, accepted in rules(client):
            assert accepted, f"{rule} takes no credential at all; add @accepts"


def test_the_table_of_the_api(edge):
    for rule, accepted in rules(edge.api):
        if rule.startswith((SANDBOXES, "/v1/snapshots", "/v1/templates", "/v1/usage")):
            assert accepted == {API_KEY, USER_JWT, SERVICE}, rule
        elif rule.startswith(KEYS):
            assert accepted == {USER_JWT, SERVICE}, rule
        elif rule.startswith(("/v1/deploys", "/v1/models", "/v1/messages")):
            assert accepted == {SERVICE}, rule
        else:
            assert rule in PUBLIC_EVERYWHERE and accepted == {PUBLIC}


def test_only_identity_is_public(edge):
    assert {rule for rule, accepted in rules(edge.identity) if accepted == {PUBLIC}} == {
        "/login", "/logout", "/.well-known/jwks.json", "/tokens/revoked", *PUBLIC_EVERYWHERE}
    assert dict(rules(edge.identity))["/token"] == {SESSION}
    assert dict(rules(edge.identity))["/admin/service-token/revoke"] == {ADMIN}


@pytest.fixture
def undeclared(edge):
    app = Flask("undeclared")
    wiring.attach(app, wiring.get_attached(edge.api.application))
    errors.install(app)
    request_ids.install(app)
    auth.install(app)
    app.add_url_rule("/forgotten", view_func=lambda: "secret")
    return app.test_client()


def test_a_route_that_declares_nothing_takes_nobody(edge, undeclared):
    alice = edge.user("alice")
    assert undeclared.get("/forgotten").status_code == 401
    for headers in (edge.key(alice), edge.jwt(alice), edge.service(alice)):
        answer = undeclared.get("/forgotten", headers=headers)
        assert answer.status_code == 403 and "secret" not in answer.text


@pytest.mark.parametrize(
    "header",
    [
        None, "", "Bearer", "Bearer ", "Basic dXNlcjpwYXNz", "Bearer nonsense", "Bearer a.b.c",
        "Bearer svc_sk_",
        "Bearer svc_sk_" + "A" * 43,
        "Bearer " + "x" * 7000,
        "Bearer \xff\xfe",
        "svc_sk_" + "A" * 43,
        "Bearer eyJhbGciOiJub25lIiwia2lkIjoieCJ9.e30.",
        "Bearer eyJhbGciOiJub25lIiwia2lkIjpbXX0.e30.",
    ],
)
@pytest.mark.parametrize("path", [SANDBOXES, f"{SANDBOXES}/unknown", KEYS])
def test_no_or_a_bad_credential_is_401(edge, header, path):
    answer = edge.api.get(path, headers={} if header is None else {"Authorization": header})
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert list(answer.json) == ["error"]


def test_key_token_and_service_all_act_as_the_user(edge):
    alice = edge.user("alice")
    made = edge.api.post(SANDBOXES, json={}, headers=edge.key(alice)).json["id"]
    for headers in (edge.key(alice), edge.jwt(alice), edge.service(alice)):
        assert edge.api.get(f"{SANDBOXES}/{made}", headers=headers).status_code == 200
    for headers in (
        edge.key(edge.user("mallory")), edge.jwt(edge.user("mallory")),
        edge.service(edge.user("mallory")),
    ):
        assert edge.api.get(f"{SANDBOXES}/{made}", headers=headers).status_code == 403


def test_keys_do_not_manage_keys(edge):
    headers = edge.key(edge.user("alice"))
    for method, path in (("GET", KEYS), ("POST", KEYS), ("DELETE", f"{KEYS}/some")):
        assert edge.api.open(path, method=method, json={"name": "x"},
                             headers=headers).status_code == 403


def test_a_service_has_to_name_a_real_user(edge):
    assert edge.api.get(SANDBOXES, headers=edge.service()).status_code == 403
    for empty in ("", "  "):
        nobody = edge.service() | {"X-On-Behalf-Of": empty}
        for method, path in (
                ("GET", SANDBOXES), ("GET", "/v1/deploys/x"), ("POST", "/v1/templates/x/latest"),
                ("DELETE", "/v1/templates/x/latest")):
            answer = edge.api.open(path, method=method, headers=nobody)
            assert (answer.status_code, answer.json["error"]) == (
                403, "X-On-Behalf-Of names no account."), path
    stranger = edge.service() | {"X-On-Behalf-Of": "nobody"}
    assert edge.api.get(SANDBOXES, headers=stranger).status_code == 403


def test_on_behalf_of_means_nothing_for_users(edge):
    alice, mallory = edge.user("alice"), edge.user("mallory")
    made = edge.api.post(SANDBOXES, json={}, headers=edge.key(alice)).json["id"]
    for headers in (edge.key(mallory), edge.jwt(mallory)):
        answer = edge.api.get(f"{SANDBOXES}/{made}", headers=headers | {"X-On-Behalf-Of": alice.id})
        assert answer.status_code == 403


def test_a_revoked_key_ends_with_the_next_request_and_no_other_does(edge):
    owner = edge.newcomer()
    kept = edge.key(owner)
    made = edge.api.post(KEYS, json={"name": "short"}, headers=edge.jwt(owner)).json
    headers = {"Authorization": f"Bearer {made['key']}"}
    assert edge.api.get(SANDBOXES, headers=headers).status_code == 200
    edge.api.delete(f"{KEYS}/{made['apiKey']['id']}", headers=edge.jwt(owner))
    assert edge.api.get(SANDBOXES, headers=headers).status_code == 401
    assert edge.api.get(SANDBOXES, headers=kept).status_code == 200


def test_an_expired_key_is_401(edge):
    owner = edge.newcomer()
    with connection():
        made = api_keys.issue(owner, "old", created_at=now())
    headers = {"Authorization": f"Bearer {made.secret}"}
    assert edge.api.get(SANDBOXES, headers=headers).status_code == 200
    with connection():
        ApiKey.update(expires_at=now()).where(ApiKey.id == made.record.id).execute()
    assert edge.api.get(SANDBOXES, headers=headers).status_code == 401


def test_a_disabled_account_is_401_with_every_credential(edge):
    owner = edge.newcomer()
    credentials = [edge.key(owner), edge.jwt(owner)]
    with connection():
        User.update(disabled_at=now()).where(User.id == owner.id).execute()
    assert [edge.api.get(SANDBOXES, headers=headers).status_code for headers in credentials] == [
        401, 401,
    ]
    assert edge.api.get(SANDBOXES, headers=edge.service(owner)).status_code == 403


def test_a_revoked_service_token_is_401_and_listed(edge):
    minted = tokens.mint_service_token(edge.settings, edge.keys.get_signing(), "test", "")
    headers = {"Authorization": f"Bearer {minted.text}", "X-On-Behalf-Of": edge.user("alice").id}
    assert edge.api.get(SANDBOXES, headers=headers).status_code == 200
    tokens.revoke(minted.jti)
    assert edge.api.get(SANDBOXES, headers=headers).status_code == 401
    assert minted.jti in edge.identity.get("/tokens/revoked").json["jtis"]


def test_a_service_token_that_nobody_minted_is_401(edge):
    minted = tokens.mint_service_token(edge.settings, edge.keys.get_signing(), "test", "")
    with connection():
        ServiceToken.delete().where(ServiceToken.jti == minted.jti).execute()
    headers = {"Authorization": f"Bearer {minted.text}", "X-On-Behalf-Of": edge.user("alice").id}
    assert edge.api.get(SANDBOXES, headers=headers).status_code == 401


def claims(edge, **changes):
    present = int(time.time())
    return {
        "iss": edge.settings.auth_url, "aud": "svc", "sub": edge.user("alice").id, "appId": "x",
        "iat": present, "exp": present + 60, "jti": "j1"
    } | changes


def forged(edge, changes=None, *, key=None, algorithm="EdDSA", kid=None, without=()):
    signing = edge.keys.get_signing()
    body = {
        name: value
        for name, value in claims(edge, **(changes or {})).items()
        if name not in without
    }
    return jwt.encode(body, key or signing.private, algorithm, headers={"kid": kid or signing.kid})


def status(edge, token):
    return edge.api.get(SANDBOXES, headers={"Authorization": f"Bearer {token}"}).status_code


def test_our_own_claims_are_good(edge):
    assert status(edge, forged(edge)) == 200


@pytest.mark.parametrize(
    "changes",
    [
        {"aud": "other"}, {"aud": ["svc", "svc-infra"]}, {"aud": ["svc"]}, {"aud": None},
        {"iss": "http://elsewhere"}, {"exp": 1}, {"exp": "soon"}, {"iat": 99999999999},
        {"sub": "nobody"}, {"sub": "a\0b"}, {"sub": 7}, {"jti": 7}, {"nbf": 99999999999},
        {"aud": "svc-infra", "sub": "svc:forged", "jti": "a\0b"},
    ],
)
def test_claims_that_are_not_ours_are_401(edge, changes):
    body = claims(edge, **changes)
    signing = edge.keys.get_signing()
    # PyJWT refuses to encode some of these, so they are signed by hand.
    text = b".".join(
        base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=")
        for part in ({"alg": "EdDSA", "typ": "JWT", "kid": signing.kid}, body))
    signature = base64.urlsafe_b64encode(signing.private.sign(text)).rstrip(b"=")
    assert status(edge, (text + b"." + signature).decode()) == 401


@pytest.mark.parametrize("claim", ["iss", "aud", "sub", "exp", "jti", "iat"])
def test_a_token_without_a_claim_is_401(edge, claim):
    assert status(edge, forged(edge, without=(claim,))) == 401


def test_a_strangers_key_is_401(edge):
    other = ed25519.Ed25519PrivateKey.generate()
    assert status(edge, forged(edge, key=other)) == 401
    assert status(edge, forged(edge, key=other, kid="unknown")) == 401
    assert status(edge, forged(edge, key=other, kid="../../etc/passwd")) == 401


def test_the_token_does_not_choose_its_algorithm(edge):
    public = edge.identity.get("/.well-known/jwks.json").json["keys"][0]["x"]
    assert status(edge, forged(edge, key=public * 2, algorithm="HS256")) == 401
    unsigned = jwt.encode(claims(edge), None, "none", headers={"kid": edge.keys.get_signing().kid})
    assert status(edge, unsigned) == 401


def test_use_is_recorded_once_a_minute(edge):
    owner = edge.newcomer()
    headers = edge.key(owner)

    def last_used():
        with connection():
            return ApiKey.get(ApiKey.owner == owner.id).last_used_at

    assert last_used() is None
    edge.api.get(SANDBOXES, headers=headers)
    first = last_used()
    assert first is not None
    edge.api.get(SANDBOXES, headers=headers)
    assert last_used() == first
    with connection():
        ApiKey.update(last_used_at=first.replace(year=2020)).where(
            ApiKey.owner == owner.id).execute()
    edge.api.get(SANDBOXES, headers=headers)
    assert last_used() >= first


def test_no_secret_of_a_key_is_stored(edge):
    owner = edge.newcomer()
    secret = edge.key(owner)["Authorization"].split()[1]
    with connection():
        row = ApiKey.select().where(ApiKey.owner == owner.id).dicts().get()
    assert secret not in repr(row) and row["prefix"] == secret[:12]
