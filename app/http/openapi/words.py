"""A sentence for every field of a request, by its name; `Schema.field` goes before the plain name.

Path parameters are named as in the rules of the routes. `tests/unit/app/test_openapi_document.py` holds this
table to the schemas.
"""
from collections.abc import Mapping

WORDS: Mapping[str, str] = {
    "agentBootstrap": (
        "For the agent server: `callbackUrl` and `callbackToken` (both or neither, never shown"
        " again), `readinessPort`, and whatever else it wants; at most 64 KiB. Raw sandboxes run"
        " none."
    ),
    "agentServerSource": "Starts the agent server: a line for the shell of the guest's user.",
    "appId": "The app that this belongs to, as text of yours.",
    "TokenBody.appId": "The app that the token is for.",
    "args": (
        "Arguments of `cmd`, untouched by any shell; with them, even an empty list, `cmd` is a"
        " program."
    ),
    "cmd": "A line for the guest's shell or, with `args`, a program. Runs as root.",
    "content": "Content of the file in base64.",
    "cwd": "Where the command starts; the sandbox's `cwd` unless given.",
    "detached": "Answer at once with `pid` and `logPath`; the command outlives the call.",
    "email": "E-mail address of the account.",
    "env": "Environment variables; at most 64 KiB in all.",
    "expiresAt": "When the key shall end by itself; in the future.",
    "gitRef": "Branch, tag or commit of the import; needs `gitRepositoryUrl`.",
    "gitRepositoryUrl": (
        "Where the sandbox's code comes from, for the record: http, https, ssh, git or"
        " user@host:path; no password, query or fragment."
    ),
    "idempotencyKey": (
        "A retry with the same key gets the first answer; with another request it is 409. Empty is"
        " none."
    ),
    "jti": "Id of the service token.",
    "kind": "Only sandboxes of this kind.",
    "limit": "How many to show; more than 500 counts as 500.",
    "memMb": "Memory in MB, together with `vcpus`, instead of `size`.",
    "mode": "Permissions of the file as a number; 420 is 0644.",
    "name": "Name of the key, to tell it from others.",
    "offset": "How many to pass over.",
    "password": "Password of the account.",
    "path": "Path of the file in the guest.",
    "ports": "Ports of the guest to expose; 1024 is the guest agent's.",
    "preferredModel": "The model that the guest's proxy routes to.",
    "projectId": "The project that this belongs to, as text of yours.",
    "projectSlug": "Name of the project, as text of yours.",
    "readinessPort": "The sandbox counts as running once this port of the guest takes connections.",
    "restoreKind": "What to capture: everything, or the project directory.",
    "sessionId": "The session that this belongs to, as text of yours.",
    "size": "Name of a machine size; the plan's own unless given.",
    "skipAppProcesses": (
        "Make a raw sandbox, without an agent server. Left out: true for API keys that name none;"
        " on a fork what its source is."
    ),
    "snapshotId": "The snapshot to start from.",
    "startCommand": (
        "What to start in the guest at every boot; needs a `readinessPort` that is also in `ports`."
    ),
    "status": "Only sandboxes in this state; without it all but the stopped ones.",
    "template": "An agent preset; not together with `templateId`.",
    "templateId": "A template to start from; not together with `template`.",
    "timeout": "Idle timeout in seconds.",
    "timeoutMs": "When to kill the command, in milliseconds; `exitCode` is then 124.",
    "version": "A version of your own, beginning with a digit; the next whole number unless given.",
    "vcpus": "Virtual CPUs, together with `memMb`, instead of `size`.",
    # path parameters
    "key_id": "Id of an API key of yours.",
    "sandbox_id": "Id of a sandbox of yours.",
    "slug": "Slug of a deploy.",
    "template_id": "Name of a template, or `<name>-v<version>` for one version of it.",
}


def describe(owner: str, name: str) -> str:
    """The sentence for the field `name` of the schema `owner`; empty if there is none."""
    return WORDS.get(f"{owner}.{name}") or WORDS.get(name, "")
