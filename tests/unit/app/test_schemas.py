"""Bodies into requests: defaults, types, limits; by table, without a server."""
import base64
from datetime import datetime, timezone

import pytest
from marshmallow import Schema, ValidationError

from app.http.bodies import reading, strict_json
from app.schemas.api_keys import ApiKeyBody
from app.schemas.execs import ExecBody
from app.schemas.fields import Base64, Environment, Flag, Moment, Numeral, Port, Ports, Text, Whole
from app.schemas.files import FileItemBody, FileQuery
from app.schemas.sandboxes import (
    CreateBody,
    ExtendBody,
    GetQuery,
    HibernateBody,
    ListQuery,
    WakeBody,
)
from app.schemas.snapshots import (
    ArchiveBody,
    ForkBody,
    SnapshotBody,
    SnapshotFork,
    SnapshotForkBody,
)
from models.states import SandboxStatus, SnapshotKind
from services.errors import InvalidRequest
from services.guest_calls.files import FileItem
from services.protocols import ExecRequest
from services.sandboxes.requests import CaptureRequest, CreateRequest, LaunchOptions

LINE = ExecRequest(None, "ls -l", None, {}, 60_000, False)
NUMBERS = ["1", 1.5, True, None, [], {}, float("nan"), float("inf")]


@pytest.mark.parametrize(
    ("field", "given", "made"),
    [
        (Whole(), 5, 5), (Whole(), 5.0, 5), (Whole(), -3, -3), (Flag(), True, True),
        (Flag(), False, False), (Text(), "x", "x"), (Text(low=0), "", ""), (Port(), 65535, 65535),
        (Ports(), [], ()), (Ports(), [80, 81], (80, 81)), (Environment(), {"A": ""}, {"A": ""}),
        (Base64(), "", b""), (Base64(), "aGk=", b"hi"), (Numeral(), "007", 7),
        (Moment(), "2030-01-31T12:00:00Z", datetime(2030, 1, 31, 12, tzinfo=timezone.utc)),
        (
            Moment(), "2030-01-31 12:00:00.123456789-01:30",
            datetime(2030, 1, 31, 13, 30, 0, 123456, timezone.utc),
        ),
    ],
)
def test_a_field_takes(field, given, made):
    result = field.deserialize(given)
    assert result == made and type(result) is type(made)


@pytest.mark.parametrize(("field", "refused"), [
    (Whole(), NUMBERS),
    (Port(), [*NUMBERS, 0, -1, 65536, 1024, 1024.0]),
    (Flag(), [0, 1, "true", "false", None, "yes"]),
    (Text(), [5, None, "", [], {}, True, "x" * 1025, b"x"]),
    (Ports(), [80, "80", {}, [80, 80], [80, 80.0], [[80]]]),
    (Environment(), [[], "A=1", {"A": 1}, {"A": True}, {"A": ["x"]}, {"": "x"}, {"=": "x"}]),
    (Base64(), [5, "a", "aGk", "aGk=\n", "aG-_", "ü", " "]),
    (Numeral(), ["", "-1", "1.0", "+1", " 1", "1e3", "٣", "1" * 10]),
    (Moment(), [
        5, "", "2030-01-31", "2030-01-31T12:00:00", "2030-13-01T00:00:00Z", "20300131T120000Z",
        "2030-01-31T24:01:00Z", "２030-01-31T12:00:00Z"
    ]),
])
def test_a_field_refuses(field, refused):
    for value in refused:
        with pytest.raises(ValidationError):
            field.deserialize(value)


@pytest.mark.parametrize(
    ("schema", "given", "made"),
    [
        (CreateBody(), {}, CreateRequest(LaunchOptions(preferred_model=""))),
        (
            CreateBody(), {"ports": [80], "timeout": 5, "size": "small", "idempotencyKey": "k"},
            CreateRequest(
                LaunchOptions(ports=(80,), timeout=5, preferred_model=""), size="small",
                idempotency_key="k",
            ),
        ),
        (
            CreateBody(),
            {
                "vcpus": 1,
                "memMb": 1024,
                "agentServerSource": "serve",
                "agentBootstrap": {"a": None, "b": [1]},
            },
            CreateRequest(
                LaunchOptions(
                    preferred_model="", agent_server_source="serve", agent_bootstrap={"b": [1]}
                ),
                vcpus=1, mem_mb=1024,
            ),
        ),
        (ForkBody(), {}, LaunchOptions()),
        (
            ForkBody(),
            {
                "ports": [80],
                "startCommand": "serve",
                "readinessPort": 80,
                "sessionId": "s",
                "projectId": "p",
                "projectSlug": "ps",
                "appId": "a",
                "preferredModel": "m",
                "skipAppProcesses": True,
            },
            LaunchOptions(
                ports=(80,), start_command="serve", readiness_port=80, session_id="s",
                project_id="p", project_slug="ps", app_id="a", preferred_model="m",
                skip_app_processes=True,
            ),
        ),
        (SnapshotForkBody(), {"snapshotId": "snap1"}, SnapshotFork("snap1", None, LaunchOptions())),
        (
            SnapshotForkBody(), {"snapshotId": "snap1", "idempotencyKey": "k", "ports": [80]},
            SnapshotFork("snap1", "k", LaunchOptions(ports=(80,))),
        ),
        (SnapshotBody(), {}, CaptureRequest(SnapshotKind.FULL)),
        (
            SnapshotBody(), {"restoreKind": "project_only"},
            CaptureRequest(SnapshotKind.FILES_ONLY),
        ),
        (ArchiveBody(), {"idempotencyKey": "k"}, CaptureRequest(SnapshotKind.FILES_ONLY, "k")),
        (WakeBody(), {}, {"ports": (), "readiness_port": None}),
        (ExtendBody(), {"timeout": 86_400}, {"timeout": 86_400}), (HibernateBody(), {}, {}),
        (ExecBody(), {"cmd": "ls -l"}, LINE),
        (
            ExecBody(), {"cmd": "ls", "args": ["-l", ""]},
            ExecRequest(("ls", "-l", ""), None, None, {}, 60_000, False),
        ),
        (
            ExecBody(), {"cmd": "ls", "args": []},
            ExecRequest(("ls",), None, None, {}, 60_000, False),
        ),
        (
            ExecBody(),
            {"cmd": "x", "cwd": "/", "env": {"A": "1"}, "timeoutMs": 1, "detached": True},
            ExecRequest(None, "x", "/", {"A": "1"}, 1, True),
        ),
        (FileItemBody(), {"path": "a", "content": "aGk="}, FileItem("a", b"hi", 0o644)),
        (FileItemBody(), {"path": "a", "content": "", "mode": 0o755}, FileItem("a", b"", 0o755)),
        (FileQuery(), {"path": "a"}, {"path": "a"}),
        (
            GetQuery(), {"waitFor": "running"},
            {"wait_for": SandboxStatus.RUNNING, "timeout_s": 30},
        ),
        (ListQuery(), {}, {"limit": 100, "offset": 0, "status": None, "kind": None}),
        (
            ListQuery(), {"limit": "5", "offset": "6", "status": "stopped", "kind": "api"},
            {"limit": 5, "offset": 6, "status": "stopped", "kind": "api"},
        ),
        (ApiKeyBody(), {"name": "x"}, {"name": "x", "expires_at": None}),
    ],
)
def test_a_body_becomes_a_request(schema: Schema, given, made):
    assert reading.check(schema, given) == made


@pytest.mark.parametrize(
    ("schema", "given", "complaint"),
    [
        (ExecBody(), {}, "cmd: Missing"), (ExecBody(), {"cmd": ""}, "cmd"),
        (ExecBody(), {"cmd": ["ls"]}, "cmd"), (ExecBody(), {"cmd": "x", "args": "-l"}, "args"),
        (ExecBody(), {"cmd": "x", "args": [1]}, "args.0"),
        (ExecBody(), {"cmd": "x", "timeoutMs": 0}, "timeoutMs"),
        (ExecBody(), {"cmd": "x", "timeoutMs": 3_600_001}, "timeoutMs"),
        (ExecBody(), {"cmd": "x", "detached": "yes"}, "detached"),
        (ExecBody(), {"cmd": "x", "cwd": "/" * 4097}, "cwd"),
        (ExecBody(), {"cmd": "x", "args": ["y" * 100_000] * 6}, "too large together"),
        (ExecBody(), {"cmd": "x", "args": [""] * 4097}, "args"),
        (ExecBody(), {"cmd": "x" * 128 * 1024}, "cmd"),
        (FileItemBody(), {"path": "a"}, "content"),
        (FileItemBody(), {"path": "a", "content": "", "mode": 0o10000}, "mode"),
        (FileItemBody(), {"path": "a", "content": "", "mode": "0644"}, "mode"),
        (FileItemBody(), {"content": ""}, "path"),
        (ExecBody(), {"cmd": "é" * 65_536}, "131071 bytes"),
        (ExecBody(), {"cmd": "a", "args": ["é" * 65_536]}, "131071 bytes"),
        *((FileItemBody(), {"path": path, "content": ""}, "path")
          for path in ("a/", "/", ".", "a/.", "..", "a/..")),
        (SnapshotBody(), {"restoreKind": "other"}, "restoreKind"),
        (SnapshotBody(), {"idempotencyKey": "x" * 257}, "idem"),
        (ArchiveBody(), {"restoreKind": "project_only"}, "restoreKind: Unknown"),
        (SnapshotForkBody(), {}, "snapshotId"),
        (ForkBody(), {"snapshotId": "x"}, "snapshotId: Unknown"),
        (ForkBody(), {"idempotencyKey": "x"}, "idempotencyKey: Unknown"),
        (ForkBody(), {"env": {}}, "env: Unknown"), (HibernateBody(), {"x": 1}, "x: Unknown"),
        (ExtendBody(), {"timeout": 86_401}, "timeout"), (WakeBody(), [], "must be an object"),
        (CreateBody(), {"a": 1, "b": 1, "c": 1, "d": 1}, "a: Unknown"),
    ],
)
def test_a_wrong_body_is_named(schema: Schema, given, complaint):
    with pytest.raises(InvalidRequest) as caught:
        reading.check(schema, given)
    assert complaint in caught.value.text and len(caught.value.text) < 300


@pytest.mark.parametrize(
    "value",
    [
        "a\0b",
        ["\0"], {"\0": 1}, {"a": {"b": ["\0"]}}, "\ud800", {"\udfff": 1}, 2**53, -(2**53), 1e300,
        float("nan"), float("inf"), [[[[2**64]]]],
    ],
)
def test_values_that_nothing_behind_the_edge_ever_sees(value):
    with pytest.raises(InvalidRequest):
        strict_json.check_values(value)


def test_a_time_in_milliseconds_is_a_number_like_others():
    strict_json.check_values({"expiresAt": 1_790_000_000_000, "least": -(2**53 - 1)})


@pytest.mark.parametrize(
    "value", ["", "ü💩", 2**31 - 1, -(2**31) + 1, 0.5, True, None, [], {}, {"a": [{"b": "c"}]}])
def test_values_that_pass(value):
    strict_json.check_values(value)


def test_a_large_file_is_decoded_exactly():
    content = bytes(range(256)) * 4096
    item = reading.check(FileItemBody(),
                         {"path": "a", "content": base64.b64encode(content).decode()})
    assert item.content == content
