"""The guest's side of agent callbacks, over real sockets: one attempt, five seconds, no redirect,
public addresses."""
import contextlib
import json
import os
import socket
import ssl
import subprocess
import sys
import time
from datetime import datetime, timedelta, timezone

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from guest.agentserver import callback
from guest.agentserver.callback import (
    DELIVERED,
    FAILED,
    LIMIT_S,
    NOT_CONFIGURED,
    REFUSED,
    TIMED_OUT,
    USAGE,
    attempt,
)
from tests.fakes.callback_receiver import NO_CONTENT, Receiver


@pytest.fixture
def receive():
    """Makes receivers."""
    with contextlib.ExitStack() as stack:
        def make(*arguments, **options):
            made = Receiver(*arguments, **options)
            stack.callback(made.close)
            return made

        yield make


@pytest.fixture
def resolve(monkeypatch):
    """Lets names have addresses; returns the list of those names that are asked for from then on.
    What other threads of this process ask for they find as ever."""
    original = socket.getaddrinfo

    def use(addresses):
        asked = []

        def find(host, port, *arguments, **options):
            if host not in addresses:
                return original(host, port, *arguments, **options)
            asked.append(host)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))
                    for address in addresses[host]]

        monkeypatch.setattr(socket, "getaddrinfo", find)
        return asked

    return use


def anywhere(address):
    """In place of the rule, so that a test may receive on this host."""
    return True


def test_a_callback_as_it_arrives(receive):
    receiver = receive()
    assert attempt(receiver.url("/hook?session=5"), "t0ken", b'{"type": "x"}',
                   allowed=anywhere)[0] == DELIVERED
    head, _, body = receiver.requests[0].partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /hook?session=5 HTTP/1.1" and body == b'{"type": "x"}'
    headers = dict(line.split(": ", 1) for line in lines[1:])
    assert (
        headers["Host"] == f"127.0.0.1:{receiver.port}"
        and headers["Authorization"] == "Bearer t0ken"
    )
    assert headers["Content-Type"] == "application/json" and not any(
        "sign" in name.lower() for name in headers
    )


@pytest.mark.parametrize("answer", [
    b"HTTP/1.1 500 No\r\n\r\n",
    b"HTTP/1.1 404 No\r\n\r\n",
    b"HTTP/1.1 429 No\r\nRetry-After: 0\r\n\r\n",
    b"nonsense\r\n\r\n",
    b"",
    b"HTTP/1.1 200" + b"x" * 100_000,
])
def test_whatever_is_answered_there_is_one_attempt(receive, answer):
    receiver = receive(answer)
    assert attempt(receiver.url(), "t", b"{}", allowed=anywhere)[0] == FAILED
    time.sleep(0.2)
    assert len(receiver.requests) == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(receive, status):
    target = receive()
    receiver = receive(f"HTTP/1.1 {status} Go\r\nLocation: {target.url()}\r\n\r\n".encode())
    assert attempt(receiver.url(), "t", b"{}", allowed=anywhere)[0] == FAILED
    assert len(receiver.requests) == 1 and target.requests == []


@pytest.mark.parametrize("options", [
    {"silent_s": 60}, {"answer": NO_CONTENT * 9, "drip": True},
    {"answer": b"HTTP/1.1 100 Continue\r\n\r\n" * 50, "drip": True},
])
def test_all_of_it_has_one_deadline(receive, options):
    """Also where something keeps coming, which a time-out of each read alone would never end."""
    assert attempt(receive(**options).url(), "t", b"{}", allowed=anywhere,
                   limit_s=0.3)[0] == TIMED_OUT
    assert LIMIT_S == 5.0, "the contract's"


def test_an_endless_body_is_not_read(receive):
    receiver = receive(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 50_000_000)
    assert attempt(receiver.url(), "t", b"{}", allowed=anywhere)[0] == DELIVERED


@pytest.mark.parametrize("host", [
    "127.0.0.1", "localhost", "127.1", "0x7f000001", "2130706433", "[::1]", "[::ffff:127.0.0.1]",
    "0.0.0.0"
])
def test_a_special_address_is_refused_before_anything_is_sent(receive, host):
    receiver = receive()
    code, sentence = attempt(receiver.url(host=host), "t", b"{}")
    assert code in ((REFUSED,) if "[::1]" not in host else (REFUSED, FAILED)), sentence
    assert receiver.requests == []


def test_one_special_address_among_the_answers_is_enough(receive, resolve):
    """The name is resolved once, so what was looked at is what is connected to."""
    receiver, asked = receive(), resolve({"rebinding.example": ["1.1.1.1", "127.0.0.1"]})
    assert attempt(receiver.url(host="rebinding.example"), "t", b"{}")[0] == REFUSED
    assert asked == ["rebinding.example"] and receiver.requests == []


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "gopher://127.0.0.1/", "http://127.0.0.1:99999/", "http:///x"])
def test_what_is_no_http_address_is_not_tried(url):
    assert attempt(url, "t", b"{}", allowed=anywhere)[0] in (REFUSED, FAILED)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A self-signed one for dashboard.example."""
    key, name = ec.generate_private_key(ec.SECP256R1()), "dashboard.example"
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    present = datetime.now(timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(present - timedelta(days=1))
        .not_valid_after(present + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    path.write_bytes(
        made.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return path


def test_https_is_to_the_name_at_the_checked_address(receive, certificate, resolve):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    receiver = receive(context=context)
    resolve({"dashboard.example": ["127.0.0.1"], "other.example": ["127.0.0.1"]})
    trusted = ssl.create_default_context(cafile=str(certificate))
    url = receiver.url(scheme="https", host="dashboard.example")
    assert attempt(url, "t", b"{}", allowed=anywhere, trusted=trusted)[0] == DELIVERED
    assert receiver.names == ["dashboard.example"]
    assert f"Host: dashboard.example:{receiver.port}".encode() in receiver.requests[0]
    assert attempt(url, "t", b"{}",
                   allowed=anywhere)[0] == FAILED, "nobody vouches for that certificate"
    other = receiver.url(scheme="https", host="other.example")
    assert attempt(other, "t", b"{}", allowed=anywhere,
                   trusted=trusted)[0] == FAILED, "it is another name's"


def command(*arguments, bootstrap, **options):
    program = (
        "import sys; from guest.agentserver.callback import main; sys.exit(main(sys.argv[1:]))"
    )
    return subprocess.run([sys.executable, "-c", program, *arguments], text=True,
                          capture_output=True, check=False, timeout=60,
                          env={**os.environ, "SVC_AGENT_BOOTSTRAP": str(bootstrap)}, **options)


def test_the_command_without_a_bootstrap_sends_nothing(tmp_path):
    assert command("turn_complete", bootstrap=tmp_path / "none.json").returncode == NOT_CONFIGURED
    (tmp_path / "b.json").write_text('{"model": "m"}')
    assert command("turn_complete", bootstrap=tmp_path / "b.json").returncode == NOT_CONFIGURED


def test_the_command_says_what_came_of_it_and_quotes_no_token(receive, tmp_path):
    receiver, path = receive(), tmp_path / "b.json"
    path.write_text(
        json.dumps({"callbackUrl": receiver.url(), "callbackToken": "hunter2", "sandboxId": "box"}))
    ran = command("turn_complete", "-", bootstrap=path, input='{"turn": 5}')
    assert (
        ran.returncode == REFUSED
        and "public internet" in ran.stderr
        and "hunter2" not in ran.stdout + ran.stderr
    )
    assert receiver.requests == []


@pytest.mark.parametrize("arguments", [(), ("nonsense", ), ("turn_complete", "[]"),
                                       ("turn_complete", "{"), ("turn_complete", "{}", "{}")])
def test_the_command_knows_its_usage(arguments, tmp_path):
    assert command(*arguments, bootstrap=tmp_path / "none.json").returncode == USAGE


def test_the_body_has_the_type_and_the_sandbox_whatever_the_payload_says(
        receive, tmp_path, monkeypatch):
    receiver = receive()
    (tmp_path / "b.json").write_text(json.dumps(
        {"callbackUrl": receiver.url(), "callbackToken": "t", "sandboxId": "box"}))
    monkeypatch.setattr(callback, "attempt", lambda *given: attempt(*given, allowed=anywhere))
    code, _ = callback.send("turn_complete", {"type": "forged", "sandboxId": "forged", "turn": 5},
                            tmp_path / "b.json")
    body = json.loads(receiver.requests[0].partition(b"\r\n\r\n")[2])
    assert code == DELIVERED and body == {"type": "turn_complete", "sandboxId": "box", "turn": 5}
