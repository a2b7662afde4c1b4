"""Authentication: the format of keys, the claims of tokens, what each of them reaches."""
import base64
import hashlib
import re

import jwt
import pytest
from jwt.algorithms import OKPAlgorithm

from models.database import connection
from models.users import ApiKey
from services.accounts import tokens

SANDBOXES, KEYS = "/v1/sandboxes", "/v1/api-keys"


def claims_of(edge, token):
    """The claims, verified with the published key as another program would."""
    published = {
        key["kid"]: key for key in edge.identity.get("/.well-known/jwks.json").json["keys"]
    }
    key = OKPAlgorithm.from_jwk(published[jwt.get_unverified_header(token)["kid"]])
    return jwt.decode(token, key, algorithms=["EdDSA"], audience=["svc", "svc-infra"])


def test_a_key_is_32_random_bytes_of_which_only_a_sha256_is_kept(edge):
    owner = edge.newcomer()
    made = [
        edge.api.post(KEYS, json={"name": "n"}, headers=edge.jwt(owner)).json["key"]
        for _ in range(2)
    ]
    for secret in made:
        assert re.fullmatch(r"svc_sk_[A-Za-z0-9_-]{43}", secret)
        assert len(base64.urlsafe_b64decode(secret.removeprefix("svc_sk_") + "=")) == 32
    assert made[0] != made[1]
    with connection():
        stored = [row.key_hash for row in ApiKey.select().where(ApiKey.owner == owner.id)]
    assert sorted(stored) == sorted(hashlib.sha256(secret.encode()).hexdigest() for secret in made)
    listed = edge.api.get(KEYS, headers=edge.jwt(owner)).text
    assert not any(secret in listed or digest in listed for secret, digest in zip(made, stored))


def test_a_user_token_has_the_audience_svc(edge):
    alice = edge.user("alice")
    claims = claims_of(edge, edge.jwt(alice)["Authorization"].split()[1])
    assert (claims["aud"], claims["sub"]) == ("svc", alice.id)
    assert claims["exp"] - claims["iat"] == 15 * 60


def test_a_service_token_has_the_contracts_claims_and_lasts_a_year(edge):
    minted = tokens.mint_service_token(edge.settings, edge.keys.get_signing(), "deployer", "app-1")
    claims = claims_of(edge, minted.text)
    assert claims.keys() == {"iss", "aud", "sub", "appId", "iat", "exp", "jti"}
    assert (claims["iss"], claims["aud"]) == (edge.settings.auth_url, "svc-infra")
    assert (claims["sub"], claims["appId"], claims["jti"]) == ("svc:deployer", "app-1", minted.jti)
    assert claims["exp"] - claims["iat"] == 365 * 24 * 3600


def test_there_is_no_public_way_to_mint_a_service_token(edge):
    rules = {
        rule.rule
        for client in (edge.api, edge.identity)
        for rule in client.application.url_map.iter_rules()
    }
    assert [rule for rule in rules if "service" in rule or "mint" in rule] == [
        "/admin/service-token/revoke"
    ]
    alice = edge.user("alice")
    browser = edge.identity.application.test_client()
    browser.post("/login",
                 json={"email": alice.email, "password": edge.people["SVC_ALICE_PASSWORD"]})
    asked = browser.post("/token", json={"appId": "svc-infra"}).json["token"]
    assert claims_of(edge, asked)["aud"] == "svc"


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_service_acts_exactly_as_the_user_it_names(edge, method):
    owner = edge.newcomer()
    answers = [edge.api.open(SANDBOXES, method=method, headers=headers)
               for headers in (edge.key(owner), edge.jwt(owner), edge.service(owner))]
    assert len({answer.status_code for answer in answers}) == 1
    listed = edge.api.get(SANDBOXES, headers=edge.key(owner)).json
    assert listed["total"] == (3 if method == "POST" else 0)
    assert listed == edge.api.get(SANDBOXES, headers=edge.service(owner)).json
    assert (
        edge.api.get(SANDBOXES, headers=edge.service(edge.newcomer())).json["total"] == 0
    ), "and as nobody else"


def test_a_key_has_no_rights_beyond_sandboxes(edge):
    owner = edge.newcomer()
    made = edge.api.post(KEYS, json={"name": "n"}, headers=edge.jwt(owner)).json["apiKey"]["id"]
    headers = edge.key(owner)
    for method, path in (("GET", KEYS), ("POST", KEYS), ("DELETE", f"{KEYS}/{made}")):
        answer = edge.api.open(path, method=method, json={"name": "x"}, headers=headers)
        assert answer.status_code == 403 and list(answer.json) == ["error"]
    assert edge.identity.post("/token", json={"appId": "x"}, headers=headers).status_code == 401
    assert edge.api.get(SANDBOXES, headers=headers).status_code == 200


@pytest.mark.parametrize("days", [1, 365])
def test_a_token_of_another_audience_opens_nothing(edge, days):
    signing = edge.keys.get_signing()
    claims = claims_of(edge, edge.jwt(edge.user("alice"))["Authorization"].split()[1])
    text = jwt.encode(claims | {"aud": "svc-other", "exp": claims["iat"] + days * 86_400},
                      signing.private, "EdDSA", headers={"kid": signing.kid})
    for path in (SANDBOXES, KEYS):
        assert edge.api.get(path, headers={"Authorization": f"Bearer {text}"}).status_code == 401
