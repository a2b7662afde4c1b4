"""POST, GET and DELETE /v1/api-keys: the record, the limits (exact under parallel requests) and
ownership."""
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from models.database import connection, now
from models.users import ApiKey
from services.accounts import api_keys

KEYS = "/v1/api-keys"
RECORD = {"id", "name", "prefix", "scopes", "createdAt", "lastUsedAt", "revokedAt", "expiresAt"}


def create(edge, owner, **body):
    return edge.client().post(KEYS, json={"name": "laptop"} | body, headers=edge.jwt(owner))


def age_all(owner, **age):
    with connection():
        ApiKey.update(created_at=now() - timedelta(**age)).where(ApiKey.owner == owner.id).execute()


def test_the_secret_is_shown_once(edge, owner):
    answer = create(edge, owner)
    assert answer.status_code == 201
    assert answer.json.keys() == {"key", "apiKey"}
    secret, record = answer.json["key"], answer.json["apiKey"]
    assert secret.startswith("svc_sk_") and len(secret) == len("svc_sk_") + 43
    assert record.keys() == RECORD
    assert record["prefix"] == secret[:12] and record["scopes"] == ["sandbox"
                                                                    ] and record["name"] == "laptop"
    assert record["revokedAt"] is record["lastUsedAt"] is record["expiresAt"] is None
    listed = edge.api.get(KEYS, headers=edge.jwt(owner))
    assert listed.json == {"apiKeys": [record]}
    assert secret not in listed.text


def test_a_service_manages_keys_for_a_user(edge, owner):
    made = edge.api.post(KEYS, json={"name": "by a service"}, headers=edge.service(owner))
    assert made.status_code == 201
    assert [key["name"] for key in edge.api.get(KEYS, headers=edge.jwt(owner)).json["apiKeys"]] == [
        "by a service"
    ]


@pytest.mark.parametrize(
    "body",
    [
        {"name": None}, {"name": ""}, {"name": "   "}, {"name": "x" * 81}, {"name": 5},
        {"name": ["x"]}, {"name": "a\0b"}, {"expiresAt": "2001-01-01T00:00:00Z"},
        {"expiresAt": "tomorrow"}, {"expiresAt": "2030-01-01"}, {"expiresAt": 5},
        {"expiresAt": "2030-01-01T00:00:00"}, {"expiresAt": "2030-02-31T00:00:00Z"},
        {"expiresAt": "9999-12-31T23:59:59-23:59"}, {"expiresAt": "0001-01-01T00:00:00+23:59"},
        {"scopes": ["admin"]},
    ],
)
def test_a_bad_body_is_400_and_makes_nothing(edge, owner, body):
    assert create(edge, owner, **body).status_code == 400
    assert edge.api.get(KEYS, headers=edge.jwt(owner)).json == {"apiKeys": []}


def test_a_name_may_have_80_characters(edge, owner):
    assert create(edge, owner, name="ü" * 80).status_code == 201


@pytest.mark.parametrize(("given", "stored"), [
    ("2099-01-01T00:00:00Z", "2099-01-01T00:00:00.000Z"),
    ("2099-01-01t02:30:00.5+02:30", "2099-01-01T00:00:00.500Z"),
])
def test_expiry_is_kept_in_utc(edge, owner, given, stored):
    assert create(edge, owner, expiresAt=given).json["apiKey"]["expiresAt"] == stored


def test_five_an_hour_exactly_however_parallel(edge, owner):
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda _: create(edge, owner), range(12)))
    assert sorted(answer.status_code for answer in answers) == [201] * 5 + [429] * 7
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert 0 < int(refused.headers["Retry-After"]) <= 3601
    assert list(refused.json) == ["error"]


def test_revoking_does_not_give_the_hour_back_but_time_does(edge, owner):
    made = [create(edge, owner).json["apiKey"]["id"] for _ in range(5)]
    for key_id in made:
        edge.api.delete(f"{KEYS}/{key_id}", headers=edge.jwt(owner))
    assert create(edge, owner).status_code == 429
    age_all(owner, minutes=61)
    assert create(edge, owner).status_code == 201


def test_ten_active_ones(edge, owner):
    for _ in range(2):
        for _ in range(5):
            assert create(edge, owner).status_code == 201
        age_all(owner, minutes=61)
    with ThreadPoolExecutor(4) as pool:
        assert {answer.status_code
                for answer in pool.map(lambda _: create(edge, owner), range(4))} == {409}
    active = edge.api.get(KEYS, headers=edge.jwt(owner)).json["apiKeys"]
    edge.api.delete(f"{KEYS}/{active[0]['id']}", headers=edge.jwt(owner))
    assert create(edge, owner).status_code == 201
    assert create(edge, owner).status_code == 409


def test_an_expired_key_is_not_active(edge, owner):
    for _ in range(5):
        create(edge, owner)
    age_all(owner, minutes=61)
    for _ in range(5):
        create(edge, owner)
    age_all(owner, minutes=61)
    with connection():
        ApiKey.update(expires_at=now()).where(ApiKey.owner == owner.id).execute()
    assert create(edge, owner).status_code == 201


def test_revocation_is_permanent_and_may_be_repeated(edge, owner):
    key_id = create(edge, owner).json["apiKey"]["id"]
    first = edge.api.delete(f"{KEYS}/{key_id}", headers=edge.jwt(owner))
    assert first.status_code == 200 and first.json["apiKey"]["revokedAt"]
    assert edge.api.delete(f"{KEYS}/{key_id}", headers=edge.jwt(owner)).json == first.json
    assert edge.api.get(KEYS, headers=edge.jwt(owner)).json["apiKeys"] == [first.json["apiKey"]]


def test_only_the_owner_revokes(edge, owner):
    key_id = create(edge, owner).json["apiKey"]["id"]
    assert (
        edge.api.delete(f"{KEYS}/{key_id}", headers=edge.jwt(edge.user("mallory"))).status_code
        == 403
    )
    assert edge.api.delete(f"{KEYS}/unknown", headers=edge.jwt(owner)).status_code == 404
    assert edge.api.get(KEYS, headers=edge.jwt(owner)).json["apiKeys"][0]["revokedAt"] is None


def test_a_free_account_has_keys_too(edge):
    assert create(edge, edge.user("bob")).status_code == 201


def test_one_that_ended_long_ago_is_forgotten(edge, owner):
    made = [create(edge, owner, name=name).json["apiKey"]["id"]
            for name in ("revoked", "expired", "just revoked", "in use")]
    with connection():
        for key_id, ended in zip(made, (
                {"revoked_at": now() - timedelta(days=api_keys.KEPT_DAYS, hours=1)},
                {"expires_at": now() - timedelta(days=api_keys.KEPT_DAYS, hours=1)},
                {"revoked_at": now() - timedelta(days=api_keys.KEPT_DAYS - 1)})):
            ApiKey.update(ended).where(ApiKey.id == key_id).execute()
    assert api_keys.forget_old() >= 2
    left = edge.api.get(KEYS, headers=edge.jwt(owner)).json["apiKeys"]
    assert [key["name"] for key in left] == ["in use", "just revoked"]
