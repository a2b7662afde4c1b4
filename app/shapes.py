"""The shapes of responses as JSON Schema, each written once; what `app/serializers.py` makes of
them.

Tests hold every response they see to these shapes (`tests/stack/conformance.py`), and no field may
be in one only.
"""
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from models.states import SandboxKind, SandboxStatus, SnapshotKind

Json = dict[str, Any]


@dataclass(frozen=True)
class Shape:
    """A named object; `schema` is its JSON Schema, with references to the other shapes in it."""

    name: str
    schema: Json


TEXT: Json = {"type": "string"}
TEXT_OR_NULL: Json = {"type": ["string", "null"]}
FLAG: Json = {"type": "boolean"}
COUNT: Json = {"type": "integer", "minimum": 0}
PORT: Json = {"type": "integer", "minimum": 1, "maximum": 65535}
AMOUNT: Json = {"type": "number", "minimum": 0}
AMOUNT_OR_NULL: Json = {"type": ["number", "null"], "minimum": 0}
MOMENT: Json = {"type": "string", "format": "date-time"}
MOMENT_OR_NULL: Json = {"type": ["string", "null"], "format": "date-time"}


def one_of(words: type[Enum]) -> Json:
    """One of the words of an enumeration."""
    return {"type": "string", "enum": [word.value for word in words]}


def constant(value: Any) -> Json:
    """Always `value`."""
    return {"const": value}


def said(schema: Json, description: str) -> Json:
    """`schema` with a sentence about it."""
    return schema | {"description": description}


def ref(shape: Shape) -> Json:
    """A reference to another shape."""
    return {"$ref": f"#/components/schemas/{shape.name}"}


def many(shape: Shape) -> Json:
    """A list of another shape."""
    return {"type": "array", "items": ref(shape)}


def shape(name: str, description: str, fields: Mapping[str, Json],
          optional: Mapping[str, Json] | None = None) -> Shape:
    """An object that always has `fields`, and `optional` ones when they say something."""
    return Shape(name, {
        "type": "object", "description": description, "properties": {**fields, **(optional or {})},
        "required": list(fields),
    })


ERROR = shape("Error", "What went wrong, and what to do about it.", {"error": TEXT})
DOCUMENT = Shape(
    "OpenApi", {
        "type": "object",
        "description": "An OpenAPI document.",
        "required": ["openapi", "info", "paths"],
        "properties": {
            "openapi": constant("3.1.0"), "info": {"type": "object"}, "paths": {"type": "object"}
        },
        "additionalProperties": True,
    })
HEALTH = shape("Health", "This process can do its work.", {"status": constant("ok")})

SANDBOX = shape(
    "Sandbox",
    "A sandbox.",
    {
        "id": TEXT,
        "status": said(
            one_of(SandboxStatus),
            "`provisioning` becomes `running`, or `stopped` if the boot fails.",
        ),
        "cwd": said(TEXT, "Where commands start."),
        "vmIP": said(TEXT, "Address of the guest on its node."),
        "portMap": said(
            {
                "type": "object",
                "propertyNames": {"pattern": "^[0-9]{1,5}$"},
                "additionalProperties": PORT,
            },
            "Port of the node to port of the guest.",
        ),
        "createdAt": MOMENT,
        "preferredModel": said(TEXT, "May be empty."),
        "nodeId": said(TEXT, "The node that holds the sandbox; what `X-Svc-Node` takes."),
    },
    {"error": said(TEXT, "Why the boot failed.")},
)

SANDBOX_ENTRY = shape("SandboxListEntry", "A sandbox in the list.", {
    "id": TEXT,
    "slug": TEXT_OR_NULL,
    "project": TEXT_OR_NULL,
    "projectId": TEXT_OR_NULL,
    "appId": TEXT_OR_NULL,
    "kind": said(one_of(SandboxKind), "`api` for what was made with an API key."),
    "status": one_of(SandboxStatus),
    "region": said(TEXT, "Name of the node."),
    "vcpus": COUNT,
    "memMb": COUNT,
    "createdAt": MOMENT,
    "lastActiveAt": MOMENT,
    "usageSeconds": AMOUNT,
    "usageCost": AMOUNT_OR_NULL,
    "computeCost": said(AMOUNT, "Estimate at list rates."),
    "sshEnabled": FLAG,
    "sshHost": TEXT_OR_NULL,
    "sshUser": TEXT_OR_NULL,
    "sshCommand": TEXT_OR_NULL,
    "sshKeysConfigured": FLAG,
})

SANDBOX_PAGE = shape("SandboxList", "A page of the owner's sandboxes, newest first, and totals.", {
    "sandboxes": many(SANDBOX_ENTRY),
    "totalUsageSeconds": AMOUNT,
    "totalComputeCost": AMOUNT,
    "computeCostBilled": said(FLAG, "`false` while billing is in shadow mode."),
    "totalLlmCost": AMOUNT_OR_NULL,
    "total": COUNT,
    "limit": COUNT,
    "offset": COUNT,
})

USAGE = shape(
    "Usage",
    "What a sandbox has used since it was made, as its host accounts for it; it only grows.", {
        "cpuMs": said(COUNT, "CPU time of its virtual machine, boots and wakes included."),
        "wallClockMs": said(COUNT, "Time in `running`."),
        "usageSeconds": said(AMOUNT, "`wallClockMs` in seconds."),
        "usageCost": said(AMOUNT_OR_NULL, "`null` while billing is in shadow mode."),
        "computeCost": said(AMOUNT, "Estimate at list rates."),
        "sampledAt": said(MOMENT_OR_NULL,
                          "When it was last read; a running sandbox is read every few seconds."),
    })

SNAPSHOT = shape("Snapshot", "A snapshot of a sandbox.", {
    "id": TEXT,
    "nodeId": TEXT,
    "kind": one_of(SnapshotKind),
    "rootfsSha": TEXT,
    "sizeBytes": COUNT,
    "tarballSizeBytes": COUNT,
    "sourceSandboxId": TEXT,
    "uploadedToStore": said(FLAG, "The upload to durable storage has finished."),
    "createdAt": MOMENT,
})

EXEC_RESULT = shape("ExecResult", "What a command printed and how it ended.", {
    "stdout": TEXT,
    "stderr": TEXT,
    "exitCode": {"type": "integer"},
}, {
    "timedOut": said(constant(True), "The deadline ended the command; `exitCode` is 124."),
    "stdoutTruncated": said(constant(True), "There was more output than is kept."),
    "stderrTruncated": said(constant(True), "There was more output than is kept."),
    "pid": said(COUNT, "Of a detached command."),
    "logPath": said(TEXT, "Where a detached command's output goes, in the guest."),
})

FILE_CONTENT = shape("FileContent", "A file.", {"content": TEXT | {"contentEncoding": "base64"}})

UPLOADED = shape("Uploaded", "A file that was uploaded.", {
    "path": said(TEXT, "Its absolute path in the guest."),
    "sizeBytes": COUNT,
})

DISK = shape("Disk", "The root file system of a running sandbox, as its guest tells it.", {
    "totalBytes": COUNT,
    "usedBytes": COUNT,
    "availableBytes": COUNT,
})

TEMPLATE = shape("Template", "A version of a template in the registry.", {
    "id": said(TEXT, "Its name; `<id>-v<version>` is this version for good."),
    "version": TEXT,
    "scope": {"type": "string", "enum": ["private", "system"]},
    "snapshotId": TEXT,
    "startCommand": TEXT_OR_NULL,
    "readinessPort": {"type": ["integer", "null"], "minimum": 1, "maximum": 65535},
    "ports": {"type": "array", "items": PORT},
    "createdAt": MOMENT,
    "updatedAt": MOMENT,
})

API_KEY = shape("ApiKey", "What is known of an API key; never its secret.", {
    "id": TEXT,
    "name": TEXT,
    "prefix": said(TEXT, "The first 12 characters of the key."),
    "scopes": {"type": "array", "items": {"const": "sandbox"}},
    "createdAt": MOMENT,
    "lastUsedAt": MOMENT_OR_NULL,
    "revokedAt": MOMENT_OR_NULL,
    "expiresAt": MOMENT_OR_NULL,
})
API_KEY_RECORD = shape("ApiKeyRecord", "One API key.", {"apiKey": ref(API_KEY)})
API_KEY_LIST = shape("ApiKeyList", "Every API key of the user, newest first.",
                     {"apiKeys": many(API_KEY)})
NEW_API_KEY = shape("NewApiKey", "A new API key, with its secret for the only time.",
                    {"key": TEXT, "apiKey": ref(API_KEY)})

ACCOUNT = shape("Account", "Who has signed in.", {"id": TEXT, "email": TEXT, "plan": TEXT})
TOKEN = shape("Token", "A user token.",
              {"token": TEXT, "expiresAt": said(COUNT, "Milliseconds since 1970.")})
KEY_SET = shape("KeySet", "A JSON Web Key Set (RFC 7517).",
                {"keys": {"type": "array", "items": {"type": "object"}}})
REVOKED = shape("RevokedTokens", "Service tokens that were revoked before their end.",
                {"jtis": {"type": "array", "items": TEXT}})
SERVICE_TOKEN = shape("ServiceToken", "What is known of a service token.", {
    "jti": TEXT,
    "subject": TEXT,
    "appId": TEXT,
    "issuedAt": MOMENT,
    "expiresAt": MOMENT,
    "revokedAt": MOMENT_OR_NULL,
})
SERVICE_TOKEN_RECORD = shape("ServiceTokenRecord", "One service token.",
                             {"serviceToken": ref(SERVICE_TOKEN)})
