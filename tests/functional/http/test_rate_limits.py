"""The token bucket on the sandbox routes."""
import time

import pytest

from tests.stack.edge import make_edge

SANDBOXES = "/v1/sandboxes"
PER_S, BURST = 2.0, 4


@pytest.fixture
def limited(postgres_url, redis_url, tmp_path):
    yield from make_edge(postgres_url, redis_url, tmp_path, sandbox_rate_per_s=PER_S,
                         sandbox_rate_burst=BURST)


def test_off_by_default(edge):
    headers = edge.key(edge.newcomer())
    assert {edge.api.get(SANDBOXES, headers=headers).status_code for _ in range(100)} == {200}


def test_a_burst_then_429_with_a_hint_that_is_true(limited):
    headers = limited.key(limited.newcomer())
    answers = [limited.api.get(SANDBOXES, headers=headers) for _ in range(20)]
    codes = [answer.status_code for answer in answers]
    assert codes[:4] == [200] * 4 and 429 in codes
    refused = answers[codes.index(429)]
    assert list(refused.json) == ["error"]
    time.sleep(int(refused.headers["Retry-After"]))
    assert limited.api.get(SANDBOXES, headers=headers).status_code == 200


def test_each_owner_has_a_bucket_whatever_the_credential(limited):
    first, second = limited.newcomer(), limited.newcomer()
    credentials = limited.key(first), limited.jwt(first), limited.service(first)
    began = time.monotonic()
    codes = [limited.api.get(SANDBOXES, headers=headers).status_code for headers in credentials * 7]
    refilled = PER_S * (time.monotonic() - began)
    assert codes.count(200) <= BURST + 1 + refilled, "one bucket for all three"
    assert limited.api.get(SANDBOXES, headers=limited.key(second)).status_code == 200


def test_other_routes_are_not_limited(limited):
    owner = limited.newcomer()
    for _ in range(10):
        limited.api.get(SANDBOXES, headers=limited.key(owner))
    assert limited.api.get("/v1/api-keys", headers=limited.jwt(owner)).status_code == 200
    assert limited.api.get("/health").status_code == 200


def test_bad_credentials_take_nothing_from_anybody(limited):
    headers = limited.key(limited.newcomer())
    for _ in range(10):
        assert limited.api.get(SANDBOXES,
                               headers={"Authorization": "Bearer svc_sk_no"}).status_code == 401
    assert limited.api.get(SANDBOXES, headers=headers).status_code == 200
