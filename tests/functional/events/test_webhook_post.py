"""One POST against receivers of every kind, on real sockets: what counts as delivered, what is
written down, and when."""
import asyncio
import resource
import socket
import ssl
import time
from datetime import datetime, timedelta, timezone
from ipaddress import ip_address

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from config.settings import Settings
from services.events.receivers import webhook_options
from tasks import webhook_post
from tasks.webhook_post import post
from tests.fakes.webhook_receiver import LATE_S, Receiver

# For those that are waited for in vain, and for everybody else.
TIMEOUT_S, PATIENT_S = 1.0, 60.0
BODY = b'{"id":"evt_1"}'


@pytest.fixture(scope="module")
def receiver():
    made = Receiver()
    yield made
    made.close()


def attempt(url, times=1, tls=None, timeout_s=PATIENT_S):
    """The answers of `times` attempts made at once."""
    target, = webhook_options(Settings(webhook_receiver_url=(url, ),
                                       webhook_secrets=("s", ))).receivers
    tls = tls or ssl.create_default_context()

    async def all_of_them():
        headers = {"X-Svc-Webhook-Id": "evt_1"}
        return await asyncio.gather(
            *(post(target, headers, BODY, timeout_s=timeout_s, tls=tls) for _ in range(times)))

    return asyncio.run(all_of_them())


@pytest.mark.parametrize(("path", "status"), [("/ok", 200), ("/ok?token=a%20b", 200),
                                              ("/flood", 200)])
def test_any_2xx_counts_whatever_follows(receiver, path, status):
    answer, = attempt(receiver.url(path))
    assert (answer.delivered, answer.http_status, answer.reason) == (True, status, None)
    arrival = receiver.arrivals(path)[-1]
    assert (arrival.body, arrival.headers["host"]) == (BODY, f"127.0.0.1:{receiver.port}")


def test_a_2xx_counts_though_its_body_does_not_come_in_time(receiver, monkeypatch):
    """What is waited for the body ends after the time-out, the status line comes well before."""
    monkeypatch.setattr(webhook_post, "_BODY_S", 6.0)
    timeout_s = LATE_S + 5.5
    answer, = attempt(receiver.url("/late"), timeout_s=timeout_s)
    assert (answer.delivered, answer.http_status, answer.reason) == (True, 200, None)
    assert answer.duration_ms > timeout_s * 1000


@pytest.mark.parametrize(("path", "status", "reason"), [
    ("/fail", 500, "HTTP 500"),
    ("/redirect", 307, "redirect"),
    ("/reset", None, "cut"),
    ("/close", None, "cut"),
    ("/garbage", None, "not HTTP"),
    ("/headers", None, "not HTTP"),
    ("/hang", None, "no answer within 1 s"),
    ("/drip", None, "no answer within 1 s"),
])
def test_everything_else_is_a_failure_with_its_reason(receiver, path, status, reason):
    is_silent = "no answer" in reason
    answer, = attempt(receiver.url(path), timeout_s=TIMEOUT_S if is_silent else PATIENT_S)
    assert (answer.delivered, answer.http_status) == (False, status)
    assert reason in answer.reason


def test_a_redirect_is_not_followed(receiver):
    before = len(receiver.arrivals("/ok"))
    attempt(receiver.url("/redirect"))
    assert len(receiver.arrivals("/ok")) == before


@pytest.mark.parametrize(("url", "reason"), [
    ("http://127.0.0.1:1/", "connection refused"),
    ("http://no-such-host.invalid/", "host name"),
])
def test_no_connection(url, reason):
    answer, = attempt(url, timeout_s=TIMEOUT_S)
    assert not answer.delivered and reason in (answer.reason or "") or "no answer" in answer.reason


@pytest.fixture(scope="module")
def tls_receiver(tmp_path_factory):
    """A receiver for 127.0.0.1 behind TLS, and the file with the certificate that it vouches for
    itself with."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "receiver")])
    moment = datetime.now(timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(moment - timedelta(days=1))
        .not_valid_after(moment + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "receiver.pem"
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(secret + made.public_bytes(Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    receiver = Receiver(context)
    yield receiver, path
    receiver.close()


def test_tls_is_used_and_the_certificate_checked(tls_receiver):
    receiver, path = tls_receiver
    stranger, = attempt(receiver.url("/ok"))
    assert not stranger.delivered and stranger.reason.startswith("TLS: self")
    assert receiver.arrivals("/ok") == []
    trusting = ssl.create_default_context(cafile=str(path))
    assert attempt(receiver.url("/ok"), tls=trusting)[0].delivered
    misnamed, = attempt(receiver.url("/ok").replace("127.0.0.1", "localhost"), tls=trusting)
    assert not misnamed.delivered and "mismatch" in misnamed.reason


def test_the_time_out_is_for_everything_together(receiver):
    with socket.create_server(("127.0.0.1", 0), backlog=1) as silent:
        for url in (receiver.url("/drip"), f"http://127.0.0.1:{silent.getsockname()[1]}/"):
            began = time.monotonic()
            answer, = attempt(url, timeout_s=TIMEOUT_S)
            assert not answer.delivered
            assert TIMEOUT_S * 900 <= answer.duration_ms
            assert time.monotonic() - began < PATIENT_S / 2


def test_a_flood_costs_little_memory(receiver):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert all(answer.delivered for answer in attempt(receiver.url("/flood"), times=20))
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kb < 40_000, "both ends run in this process: 20 floods within 2 MB each"


def test_no_proxy_of_the_environment_is_used(receiver, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    answer, = attempt(receiver.url("/ok"))
    assert answer.delivered


def test_slow_ones_do_not_hold_up_quick_ones(receiver):
    target, other = (
        webhook_options(
            Settings(webhook_receiver_url=(receiver.url(path),), webhook_secrets=("s",))
        ).receivers[0]
        for path in ("/hang", "/ok")
    )
    tls = ssl.create_default_context()

    async def both():
        slow = [
            asyncio.create_task(post(target, {}, BODY, timeout_s=PATIENT_S, tls=tls))
            for _ in range(50)
        ]
        await asyncio.sleep(0)
        quick = await asyncio.gather(
            *(
                post(other, {"X-Svc-Webhook-Id": "e"}, BODY, timeout_s=PATIENT_S, tls=tls)
                for _ in range(50)
            )
        )
        unfinished = sum(not task.done() for task in slow)
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)
        return quick, unfinished

    quick, unfinished = asyncio.run(both())
    assert all(answer.delivered for answer in quick) and unfinished == 50
