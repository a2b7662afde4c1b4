"""The guest's side of agent callbacks, over real sockets: one attempt, five seconds, no redirect,
public addresses."""
import contextlib
import json
import os
import pwd
import socket
import ssl
import subprocess
import sys
import threading
import time
from datetime import datetime, timedelta, timezone

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from guest.agentserver import callback, run_agent_server, start_agent_server
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

NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"


class Receiver:
    """Answers every connection with the same bytes, after a while if need be, and keeps what it was
    sent."""

    def __init__(self, answer=NO_CONTENT, *, silent_s=0.0, drip=False, context=None):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=16)
        self.port = self.listener.getsockname()[1]
        self.requests, self.names = [], []
        self._answer, self._silent_s, self._drip, self._context = answer, silent_s, drip, context
        self._over = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                link, _ = self.listener.accept()
                self.requests.append(b"")
                with contextlib.suppress(OSError), link:
                    self._talk(link)

    def _talk(self, link):
        if self._context is not None:
            self._context.sni_callback = lambda _, name, __: self.names.append(name)
            with self._context.wrap_socket(link, server_side=True) as secured:
                return self._answer_one(secured)
        return self._answer_one(link)

    def _answer_one(self, link):
        received = b""
        while b"\r\n\r\n" not in received or len(
                received.partition(b"\r\n\r\n")[2]) < _length(received):
            received += link.recv(65536)
        self.requests[-1] = received
        self._over.wait(self._silent_s)
        for piece in ([self._answer]
                      if not self._drip else [bytes([byte]) for byte in self._answer]):
            link.sendall(piece)
            if self._drip and self._over.wait(0.3):
                return

    def url(self, path="/hook", scheme="http", host="127.0.0.1"):
        return f"{scheme}://{host}:{self.port}{path}"

    def close(self):
        self._over.set()
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


def _length(request):
    return int(request.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])


@pytest.fixture
def receive():
    """Makes receivers."""
    with contextlib.ExitStack() as stack:
        def make(*arguments, **options):
            made = Receiver(*arguments, **options)
            stack.callback(made.close)
            return made

        yield make


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
                   limit_s=1.0)[0] == TIMED_OUT
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


def test_one_special_address_among_the_answers_is_enough(receive, monkeypatch):
    """The name is resolved once, so what was looked at is what is connected to."""
    receiver, asked = receive(), []

    def resolve(host, port, **_):
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))
                for address in ("1.1.1.1", "127.0.0.1")]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
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


def test_https_is_to_the_name_at_the_checked_address(receive, certificate, monkeypatch):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    receiver = receive(context=context)
    address = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", receiver.port))
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, port, **_: [address])
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


@pytest.fixture
def directory(tmp_path):
    """Hands a configuration over, as the host's file and the guest's command do."""
    def make(**content):
        whole = {
            "sandboxId": "box", "source": "true", "bootstrap": None, "cwd": str(tmp_path),
            "env": {}
        } | content
        (tmp_path / start_agent_server.CONFIGURATION_NAME).write_text(json.dumps(whole))
        start_agent_server.hand_over(tmp_path, pwd.getpwuid(os.getuid()))
        return tmp_path

    return make


def test_the_token_is_in_one_file_that_only_its_user_reads(directory):
    place = directory(bootstrap={"callbackToken": "hunter2", "model": "m"})
    assert json.loads((place / "bootstrap.json").read_text()) == {
        "callbackToken": "hunter2", "model": "m", "sandboxId": "box"}
    assert "hunter2" not in (place / "launch.json").read_text()
    assert [path.stat().st_mode & 0o777 for path in (place, *sorted(place.iterdir()))] == [
        0o700, 0o600, 0o600,
    ]
    assert not (directory(bootstrap=None) / "bootstrap.json").exists(), "an earlier one goes"


@pytest.mark.parametrize(
    ("source", "bootstrap", "told"),
    [
        ("sleep 3", {}, ["agent_server_ready"]), ("exit 5", {}, []), ("sleep 3", None, []),
        (
            "exec python3 -m http.server --bind 127.0.0.1 $PORT & sleep 3",
            "port",
            ["agent_server_ready"],
        ),
        ("sleep 3", "port", []),
    ],
)
def test_ready_is_told_once_and_only_if_it_is(directory, source, bootstrap, told):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    content = {"readinessPort": port} if bootstrap == "port" else bootstrap
    place, heard = directory(source=source + "; kill %1 2>/dev/null", bootstrap=content,
                             env={"PORT": str(port)}), []

    def tell(kind, payload, file):
        heard.append(kind)
        return 0, "told"

    run_agent_server.serve(place, tell)
    assert heard == told


def test_the_server_sees_its_sandbox_its_file_and_the_owners_variables(directory):
    place = directory(source="env > seen; exit 7", bootstrap={},
                      env={"MINE": "a b", "LANG": "mine"})
    assert run_agent_server.serve(place, lambda *_: (0, "")) == 7
    seen = set((place / "seen").read_text().splitlines())
    assert {
        "SVC_SANDBOX_ID=box", f"SVC_AGENT_BOOTSTRAP={place}/bootstrap.json", "MINE=a b",
        "LANG=mine", "USER=user", "HOME=/home/user"
    } <= seen
