"""Schedule, settings, signatures and the receivers' side of them: pure rules, by table."""
import hashlib
import hmac
from datetime import datetime, timedelta, timezone

import pytest

from config.settings import Settings, SettingsError, load
from sdk import webhooks as sdk
from services.events.receivers import webhook_options
from services.events.signature import sign, signed_headers
from services.events.signing_secrets import Secret, parse_secrets
from services.events.webhook_retries import next_due

EVENT_AT = datetime(2026, 11, 21, 2, 0, tzinfo=timezone.utc)
WAITS = (1.0, 5.0, 20.0)
BODY = (b'{"id":"evt_1","type":"sandbox.started","ownerId":"u",'
        b'"occurredAt":"2026-11-21T02:00:00.000Z","data":{}}')


def after_event(seconds):
    return EVENT_AT + timedelta(seconds=seconds)


@pytest.mark.parametrize(("due", "attempts", "expected"), [
    (1, 1, 6),
    (6, 2, 26),
    (26, 3, None),
    (1, 4, None),      # there were more attempts when the settings had more waits
])
def test_the_schedule_runs_from_the_event_whenever_attempts_were_made(due, attempts, expected):
    found = next_due(after_event(due), attempts, WAITS)
    assert found == (None if expected is None else after_event(expected))


@pytest.mark.parametrize(("entries", "expected"), [
    (("one",), [("v1", b"one")]),
    (("one", "two"), [("v1", b"one"), ("v2", b"two")]),
    (("v2:two", "v1:one"), [("v1", b"one"), ("v2", b"two")]),
    (("v3:three", "v2:two", "v1:one"), [("v1", b"one"), ("v3", b"three"), ("v2", b"two")]),
    (("v1:with:colons",), [("v1", b"with:colons")]),
    (("whsec_x=/+",), [("v1", b"whsec_x=/+")]),
    ((), []),
])
def test_secrets_stand_under_their_versions(entries, expected):
    assert [(secret.version, secret.key) for secret in parse_secrets(entries)] == expected


@pytest.mark.parametrize("entries", [
    ("v1:",), ("v1:a", "v1:b"), ("v2:a", "b"), ("v2:new",), ("v2:a", "v3:b"),
])
def test_secrets_that_make_no_sense_are_refused(entries):
    with pytest.raises(SettingsError, match="SVC_WEBHOOK_SECRETS"):
        parse_secrets(entries)


@pytest.mark.parametrize(("url", "host", "port", "tls", "target"), [
    ("http://10.0.0.7/hook", "10.0.0.7", 80, False, "/hook"),
    ("https://hooks.example.org", "hooks.example.org", 443, True, "/"),
    ("https://hooks.example.org:8443/a?token=sesame", "hooks.example.org", 8443, True,
     "/a?token=sesame"),
    ("http://[::1]:9000/x", "::1", 9000, False, "/x"),
])
def test_a_receiver_is_its_url_and_its_name_shows_no_secret(url, host, port, tls, target):
    receiver, = webhook_options(Settings(webhook_receiver_url=(url, ),
                                         webhook_secrets=("s", ))).receivers
    assert (receiver.host, receiver.port, receiver.tls, receiver.target) == (
        host, port, tls, target,
    )
    assert "sesame" not in receiver.name and "hook" not in receiver.name.replace(
        "hooks.example.org", "")
    other, = webhook_options(Settings(webhook_receiver_url=(url + "0", ),
                                      webhook_secrets=("s", ))).receivers
    assert other.name != receiver.name


@pytest.mark.parametrize("url", [
    "hooks.example.org/x",
    "ftp://h/x",
    "http://",
    "http://user:pw@h/",
    "http://h:99999/",
    "http://h/x y",
    "http://h/#part",
    "http://" + "a" * 70 + ".example/",
])
def test_a_malformed_receiver_is_refused_by_name(url):
    with pytest.raises(SettingsError, match="SVC_WEBHOOK_RECEIVER_URL"):
        webhook_options(Settings(webhook_receiver_url=(url,), webhook_secrets=("s",)))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SVC_WEBHOOK_SECRETS", ""), ("SVC_WEBHOOK_WAITS", ""), ("SVC_WEBHOOK_WAITS", "-1"),
        ("SVC_WEBHOOK_WAITS", "1,nan"), ("SVC_WEBHOOK_TIMEOUT_S", "0"), ("SVC_WEBHOOK_SLOTS", "0"),
    ],
)
def test_settings_that_cannot_work_are_refused_by_name(name, value):
    values = {"SVC_WEBHOOK_RECEIVER_URL": "http://h/", "SVC_WEBHOOK_SECRETS": "s", name: value}
    with pytest.raises(SettingsError, match=name):
        webhook_options(load(values))


def test_several_receivers_and_the_same_twice():
    options = webhook_options(load({"SVC_WEBHOOK_RECEIVER_URL": "http://a/, http://b/ ,http://a/",
                                    "SVC_WEBHOOK_SECRETS": "s"}))
    assert [receiver.url for receiver in options.receivers] == ["http://a/", "http://b/"]


def by_hand(key, timestamp, body):
    """HMAC as RFC 2104 writes it, without the hmac module."""
    block = key.ljust(64, b"\0") if len(key) <= 64 else hashlib.sha256(key).digest().ljust(
        64, b"\0")
    inner = hashlib.sha256(bytes(byte ^ 0x36
                                 for byte in block) + f"{timestamp}.".encode() + body).digest()
    return hashlib.sha256(bytes(byte ^ 0x5C for byte in block) + inner).hexdigest()


@pytest.mark.parametrize("key", [b"s", b"x" * 64, b"long" * 40])
def test_the_signature_is_hmac_sha256_over_timestamp_dot_body(key):
    assert sign([Secret("v1", key)], 1_790_000_000,
                BODY) == "v1=" + by_hand(key, 1_790_000_000, BODY)


def test_the_headers_are_those_of_the_contract():
    secrets = [Secret("v1", b"old"), Secret("v2", b"new")]
    assert signed_headers(secrets, "evt_1", "sandbox.started", 17, BODY) == {
        "X-Svc-Webhook-Id": "evt_1",
        "X-Svc-Webhook-Timestamp": "17",
        "X-Svc-Webhook-Type": "sandbox.started",
        "X-Svc-Webhook-Signature": f"v1={by_hand(b'old', 17, BODY)},v2={by_hand(b'new', 17, BODY)}",
    }


def headers(timestamp=1000, secrets=("s",), body=BODY, **changed):
    made = signed_headers(parse_secrets(secrets), "evt_1", "sandbox.started", timestamp, body)
    return {name.lower(): value for name, value in made.items()} | changed


def test_a_genuine_request_is_verified():
    event = sdk.verify("s", headers(), BODY, now=1000)
    assert (event.id, event.type, event.owner_id, event.data) == ("evt_1", "sandbox.started", "u",
                                                                  {})
    assert sdk.verify("s", {name.upper(): value
                            for name, value in headers().items()}, BODY, now=1000) == event


@pytest.mark.parametrize(("sender", "receiver"), [
    (("old", "new"), "old"),
    (("old", "new"), "new"),
    (("v1:new", "v2:old"), "old"),
    (("new", ), ["old", "new"]),
    (("old", ), ["old", "new"]),
])
def test_a_rotation_is_smooth_whoever_goes_first(sender, receiver):
    assert sdk.verify(receiver, headers(secrets=sender), BODY, now=1000).id == "evt_1"


@pytest.mark.parametrize("moment", [1000 - 300, 1000, 1000 + 300])
def test_clocks_may_differ_by_the_tolerance(moment):
    assert sdk.verify("s", headers(), BODY, now=moment)


@pytest.mark.parametrize(("changed", "body", "moment"), [
    ({}, BODY, 1301),
    ({}, BODY, 699),
    ({}, BODY + b" ", 1000),
    ({}, BODY.replace(b'":', b'": '), 1000),
    ({"x-svc-webhook-timestamp": "1001"}, BODY, 1000),
    ({"x-svc-webhook-timestamp": ""}, BODY, 1000),
    ({"x-svc-webhook-timestamp": "1e3"}, BODY, 1000),
    ({"x-svc-webhook-timestamp": "٣"}, BODY, 1000),
    ({"x-svc-webhook-timestamp": "9" * 5000}, BODY, 1000),
    ({"x-svc-webhook-signature": ""}, BODY, 1000),
    ({"x-svc-webhook-signature": "v1="}, BODY, 1000),
    ({"x-svc-webhook-signature": "v1=" + "0" * 64}, BODY, 1000),
    ({"x-svc-webhook-signature": "v1=ü"}, BODY, 1000),
    ({"x-svc-webhook-signature": by_hand(b"s", 1000, BODY)}, BODY, 1000),
])
def test_everything_else_is_refused(changed, body, moment):
    with pytest.raises(sdk.SignatureError):
        sdk.verify("s", headers() | changed, body, now=moment)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"\xff", b'{"id":"x"}'])
def test_a_signed_body_that_is_no_event_is_refused(body):
    with pytest.raises(sdk.SignatureError):
        sdk.verify("s", headers(body=body), body, now=1000)


@pytest.mark.parametrize("secrets", ["", [], ["s", ""]])
def test_an_empty_secret_is_a_mistake_of_the_caller(secrets):
    with pytest.raises(ValueError):
        sdk.verify(secrets, headers(), BODY, now=1000)


def test_digests_are_compared_in_constant_time(monkeypatch):
    compared = []
    genuine = hmac.compare_digest

    def watched(one, other):
        compared.append((one, other))
        return genuine(one, other)

    monkeypatch.setattr(sdk.hmac, "compare_digest", watched)
    sdk.verify(["s", "t"], headers(secrets=("s", "x")), BODY, now=1000)
    assert len(compared) == 4, "every pair, also after one has matched"
