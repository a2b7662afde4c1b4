"""Responses have exactly the contract's names, and times are RFC 3339 in UTC."""
import base64
from datetime import datetime, timedelta, timezone

import pytest
from flask import Flask, Response

from app.deps import make_deps
from app.http.bodies.json_text import fill
from app.schemas.answers import answer_of
from app.schemas.api_keys import ApiKeyAnswer, NewApiKeyAnswer
from app.schemas.execs import ExecResultAnswer
from app.schemas.files import FileContentAnswer
from app.schemas.identity import TokenAnswer
from app.schemas.sandboxes import SandboxAnswer
from app.schemas.snapshots import SnapshotAnswer
from app.wiring import Wired, attach
from config.settings import Settings
from guest.client.results import ExecResult
from models.users import ApiKey
from services.accounts.api_keys import NewKey
from services.accounts.tokens import Token
from services.events.record import rfc3339
from services.sandboxes.views import SandboxView
from services.snapshots.views import SnapshotView

MOMENT = datetime(2030, 1, 31, 14, 0, 0, 123456, timezone(timedelta(hours=2)))
TEXT = "2030-01-31T12:00:00.123Z"
SANDBOX = SandboxView("id1", "running", "/home/user", "10.1.0.2", {20001: 3000, 20000: 8080},
                      MOMENT, "m", "n1")


def show(kind, shown):
    """The JSON of an answer as it is sent."""
    app = Flask("test")
    attach(app, Wired(Settings(), make_deps(Settings()), None))
    with app.app_context():
        response = Response()
        fill(response, answer_of(kind).dump(shown))
        return response.get_json()


def test_times_are_utc_with_z():
    assert rfc3339(MOMENT) == TEXT
    assert rfc3339(MOMENT.replace(microsecond=0)) == "2030-01-31T12:00:00.000Z"


def test_a_sandbox():
    assert show(SandboxAnswer, SANDBOX) == {
        "id": "id1", "status": "running", "cwd": "/home/user", "vmIP": "10.1.0.2",
        "portMap": {"20000": 8080,
                    "20001": 3000}, "createdAt": TEXT, "preferredModel": "m", "nodeId": "n1"
    }


def test_a_sandbox_that_survived_storage_looks_the_same():
    again = SandboxView.from_json(SANDBOX.to_json() | {"port_map": {"20001": 3000, "20000": 8080}})
    assert show(SandboxAnswer, again) == show(SandboxAnswer, SANDBOX)


def test_a_snapshot():
    view = SnapshotView("snap1", "n1", "user_project", "abc", 5, 0, "id1", False, MOMENT)
    assert show(SnapshotAnswer, view) == {
        "id": "snap1", "nodeId": "n1", "kind": "user_project", "rootfsSha": "abc", "sizeBytes": 5,
        "tarballSizeBytes": 0, "sourceSandboxId": "id1", "uploadedToStore": False, "createdAt": TEXT
    }


@pytest.mark.parametrize(("outcome", "shown"), [
    (ExecResult(b"a\n", b"", 0), {"stdout": "a\n", "stderr": "", "exitCode": 0}),
    (ExecResult(b"\xff\xc3", "ü".encode(),
                3), {"stdout": "\ufffd\ufffd", "stderr": "ü", "exitCode": 3}),
    (ExecResult(b"x\0y", b"", 0), {"stdout": "x\0y", "stderr": "", "exitCode": 0}),
    (ExecResult(b"", b"", 124,
                timed_out=True), {"stdout": "", "stderr": "", "exitCode": 124, "timedOut": True}),
    (ExecResult(b"", b"", 0, stdout_truncated=True, stderr_truncated=True, pid=7),
     {"stdout": "", "stderr": "", "exitCode": 0, "stdoutTruncated": True, "stderrTruncated": True}),
    (ExecResult(b"", b"", 0, pid=7, log_path="/var/log/x"),
     {"stdout": "", "stderr": "", "exitCode": 0, "pid": 7, "logPath": "/var/log/x"}),
])
def test_an_exec_result(outcome, shown):
    assert show(ExecResultAnswer, outcome) == shown


def test_an_api_key_never_shows_its_hash():
    record = ApiKey(id="k", owner="u", name="n", key_hash="HASH", prefix="svc_sk_12345",
                    scopes=["sandbox"], created_at=MOMENT, revoked_at=MOMENT)
    shown = {
        "id": "k", "name": "n", "prefix": "svc_sk_12345", "scopes": ["sandbox"], "createdAt": TEXT,
        "lastUsedAt": None, "revokedAt": TEXT, "expiresAt": None
    }
    assert show(ApiKeyAnswer, record) == shown
    assert show(NewApiKeyAnswer, NewKey("SECRET", record)) == {"key": "SECRET", "apiKey": shown}


def test_a_file_is_base64():
    content = bytes(range(256)) * 50
    for size in (1, 2, 3, 4, 1000, 1 << 20):
        pieces = (content[start:start + size] for start in range(0, len(content), size))
        shown = show(FileContentAnswer, pieces)["content"]
        assert base64.b64decode(shown, validate=True) == content
    assert show(FileContentAnswer, iter([b"\0", b"\xff"])) == {"content": "AP8="}
    assert show(FileContentAnswer, iter([])) == {"content": ""}


def test_a_token_ends_in_milliseconds():
    token = Token("t", "j", datetime.fromtimestamp(5, timezone.utc))
    assert show(TokenAnswer, token) == {"token": "t", "expiresAt": 5000}
