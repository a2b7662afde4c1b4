"""What responses look like: the only place that knows the contract's camelCase names."""
import base64
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from models.sandboxes import Sandbox
from models.templates import Template
from models.users import ApiKey, ServiceToken, User
from services.accounts.api_keys import NewKey
from services.accounts.tokens import Token
from services.guest_calls.files import Uploaded
from services.metering.prices import amount
from services.protocols import DiskUsage, ExecOutcome
from services.sandboxes.listing import Page
from services.sandboxes.usage import UsageView
from services.sandboxes.views import SandboxView, SnapshotView

Json = dict[str, Any]


def timestamp(moment: datetime) -> str:
    """RFC 3339 in UTC, with milliseconds."""
    return moment.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _optional(moment: datetime | None) -> str | None:
    return None if moment is None else timestamp(moment)


def sandbox(view: SandboxView) -> Json:
    """Contract, Sandbox. `error` is ours: why a boot failed, or a service did not get ready, only
    when that is so."""
    shown: Json = {
        "id": view.id,
        "status": view.status,
        "cwd": view.cwd,
        "vmIP": view.vm_ip,
        "portMap": {str(host): guest for host, guest in sorted(view.port_map.items())},
        "createdAt": timestamp(view.created_at),
        "preferredModel": view.preferred_model,
        "nodeId": view.node_id,
    }
    return shown if view.error is None else shown | {"error": view.error}


def sandbox_entry(row: Sandbox) -> Json:
    """Contract, Sandbox list entry. Nothing is billed and raw SSH not offered, and that is what it
    says."""
    return {
        "id": row.id,
        "slug": None,
        "project": row.project_slug,
        "projectId": row.project_id,
        "appId": row.app_id,
        "kind": row.kind,
        "status": row.status,
        "region": row.node_id,
        "vcpus": row.vcpus,
        "memMb": row.mem_mb,
        "createdAt": timestamp(row.created_at),
        "lastActiveAt": timestamp(row.last_active_at),
        "usageSeconds": row.wall_clock_ms / 1000,
        "usageCost": None,
        "computeCost": amount(row.cost),
        "sshEnabled": False,
        "sshHost": None,
        "sshUser": None,
        "sshCommand": None,
        "sshKeysConfigured": False,
    }


def sandbox_page(page: Page) -> Json:
    """Contract, List envelope."""
    return {
        "sandboxes": [sandbox_entry(row) for row in page.items],
        "totalUsageSeconds": page.used.wall_clock_ms / 1000,
        "totalComputeCost": amount(page.used.cost),
        "computeCostBilled": False,
        "totalLlmCost": None,
        "total": page.total,
        "limit": page.limit,
        "offset": page.offset,
    }


def usage(view: UsageView) -> Json:
    """Contract, Usage; all but the first two are ours, named as in the list."""
    return {
        "cpuMs": view.cpu_ms,
        "wallClockMs": view.wall_clock_ms,
        "usageSeconds": view.wall_clock_ms / 1000,
        "usageCost": None,
        "computeCost": amount(view.cost),
        "sampledAt": _optional(view.sampled_at),
    }


def snapshot(view: SnapshotView) -> Json:
    """Contract, Snapshot."""
    return {
        "id": view.id,
        "nodeId": view.node_id,
        "kind": view.kind,
        "rootfsSha": view.rootfs_sha,
        "sizeBytes": view.size_bytes,
        "tarballSizeBytes": view.tarball_size_bytes,
        "sourceSandboxId": view.source_sandbox_id,
        "uploadedToStore": view.uploaded_to_store,
        "createdAt": timestamp(view.created_at),
    }


def exec_result(outcome: ExecOutcome) -> Json:
    """Contract, Exec result; bytes that are not UTF-8 become U+FFFD.

    The other fields are ours, and present only when they say something.
    """
    shown: Json = {
        "stdout": outcome.stdout.decode("utf-8", "replace"),
        "stderr": outcome.stderr.decode("utf-8", "replace"),
        "exitCode": outcome.exit_code,
    }
    flags = {
        "timedOut": outcome.timed_out,
        "stdoutTruncated": outcome.stdout_truncated,
        "stderrTruncated": outcome.stderr_truncated,
    }
    shown |= {name: True for name, is_set in flags.items() if is_set}
    if outcome.log_path is not None:
        shown |= {"pid": outcome.pid, "logPath": outcome.log_path}
    return shown


def disk(usage: DiskUsage) -> Json:
    """Contract, Other shapes; the fields are our choice."""
    return {
        "totalBytes": usage.total_bytes,
        "usedBytes": usage.used_bytes,
        "availableBytes": usage.available_bytes,
    }


def uploaded(done: Uploaded) -> Json:
    """Our choice; the contract shows no fields."""
    return {"path": done.path, "sizeBytes": done.size_bytes}


def file_content(content: bytes) -> Json:
    """Contract, File read result."""
    return {"content": base64.b64encode(content).decode()}


def template(record: Template) -> Json:
    """A registry entry (our choice; the contract does not show it)."""
    return {
        "id": record.name,
        "version": record.version,
        "scope": "system" if record.owner_id is None else "private",
        "snapshotId": record.snapshot_id,
        "startCommand": record.start_command,
        "readinessPort": record.readiness_port,
        "ports": record.ports,
        "createdAt": timestamp(record.created_at),
        "updatedAt": timestamp(record.updated_at),
    }


def api_key(record: ApiKey) -> Json:
    """Contract, API key record; never the secret or its hash."""
    return {
        "id": record.id,
        "name": record.name,
        "prefix": record.prefix,
        "scopes": record.scopes,
        "createdAt": timestamp(record.created_at),
        "lastUsedAt": _optional(record.last_used_at),
        "revokedAt": _optional(record.revoked_at),
        "expiresAt": _optional(record.expires_at),
    }


def new_api_key(made: NewKey) -> Json:
    """The one response that shows a key's secret."""
    return {"key": made.secret, "apiKey": api_key(made.record)}


def account(user: User) -> Json:
    """Who has signed in (our choice; the contract has no account record)."""
    return {"id": user.id, "email": user.email, "plan": user.plan}


def token(minted: Token) -> Json:
    """Contract, Identity host endpoints: the time is in milliseconds."""
    return {"token": minted.text, "expiresAt": int(minted.expires_at.timestamp() * 1000)}


def revoked(jtis: list[str]) -> Json:
    """Contract, Identity host endpoints."""
    return {"jtis": jtis}


def key_set(keys: list[Mapping[str, str]]) -> Json:
    """A JSON Web Key Set (RFC 7517)."""
    return {"keys": [dict(key) for key in keys]}


def service_token(record: ServiceToken) -> Json:
    """A service token as an administrator sees it (our choice); the token itself is not kept."""
    return {
        "jti": record.jti,
        "subject": record.subject,
        "appId": record.app_id,
        "issuedAt": timestamp(record.issued_at),
        "expiresAt": timestamp(record.expires_at),
        "revokedAt": _optional(record.revoked_at),
    }
