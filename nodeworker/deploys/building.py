"""Builds a project in its builder: starts the build, and looks now and then how far it is.

The build runs detached in the guest, so no worker is held by it, and one that takes the run over
finds it under way. 1. The script is started once for each epoch that began a builder: a directory
in the guest says so. 2. Each look takes what the log has gained, and the exit code once there is
one. 3. After a good build the guest is asked what is there. A guest is hostile: what it says is
bounded, and decides nothing but how its own app is served.
"""
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from guest.client.agent_client import AgentClient
from guest.client.errors import AgentRefused, AgentTimeout
from nodeworker.deploys.build_scripts import (
    BUILD,
    INNER,
    LAST_BYTES,
    LOOK,
    LOOKED_AT_MOST,
    REGISTRY,
    WORK,
)
from services.deploys.logs import LOG_BYTES_MOST
from services.deploys.projects import manifest, static_or_process
from services.deploys.projects.manifest import BadProject, Project
from services.deploys.projects.static_or_process import Built

_TEXT_MOST = 256 * 1024
_PIECE_BYTES = 256 * 1024
# What a guest has for an answer; an honest one that is busy is asked again.
_TALK_MS, _GRACE_S = 2000, 1.0
_LOOK_MS = 60_000
_LAST_LINES = 50


@dataclass(frozen=True)
class Look:
    """How far a build is: what its log has gained, and its exit code once it has ended."""

    log: bytes
    exit_code: int | None


def read_project(agent: AgentClient, directory: str) -> Project:
    """What the project's own files say; raises BadProject, AgentError."""
    return manifest.read_project(_read(agent, f"{directory}/{manifest.FILE}"),
                                 _read(agent, f"{directory}/package.json"))


def begin(agent: AgentClient, directory: str, project: Project, env: Mapping[str, str]) -> None:
    """Start the build unless it was started in this guest; raises AgentError."""
    words = (BUILD, "build", WORK, INNER, project.build or "", REGISTRY)
    script = f"mkdir {WORK} 2>/dev/null || exit 0; exec setsid /bin/sh -c {shlex.join(words)}"
    agent.exec(["/bin/sh", "-c", script], cwd=directory, env=env, detached=True,
               timeout_ms=_TALK_MS, grace_s=_GRACE_S)


def look(agent: AgentClient, read_bytes: int) -> Look | None:
    """What the build's log has beyond its first `read_bytes`, nothing beyond what a log keeps, and
    the build's exit code; None if no build was begun in this guest. Raises AgentError."""
    most = _PIECE_BYTES if read_bytes <= LOG_BYTES_MOST else 0
    # The code first: what was logged before it was written is in the log then.
    script = (f"[ -e {WORK} ] || exit 0; cat {WORK}/exit 2>/dev/null || echo -;"
              f" tail -c +{read_bytes + 1} {WORK}/log"
              f" 2>/dev/null | head -c {most}")
    said = _hear(agent, script, _PIECE_BYTES + 64)
    if not said:
        return None
    first, _, log = said.partition(b"\n")
    code = first.decode("ascii", "replace").strip()
    ended = code.isdigit() and (len(log) < most or not most)
    return Look(log, int(code[:3]) if ended else None)


def last_lines(agent: AgentClient) -> str:
    """The end of what a build that has ended has said; raises AgentError."""
    script = f"cd {WORK}; {{ tail -c {LAST_BYTES} log; cat last; }} | tail -c {LAST_BYTES}"
    said = _hear(agent, script, LAST_BYTES).decode("utf-8", "replace")
    return "\n".join(said.strip().splitlines()[-_LAST_LINES:])


def judge(agent: AgentClient, directory: str, project: Project,
          live_database: str | None = None) -> Built:
    """What there is after the build, for an app that goes on with the database of that name; raises
    BadProject, AgentError."""
    candidates = json.dumps(static_or_process.candidates(project))
    said = agent.exec(["python3", "-c", LOOK, candidates, live_database or ""],
                      cwd=directory, timeout_ms=_LOOK_MS, cap_bytes=_TEXT_MOST)
    too_many = BadProject(f"The project has more than {LOOKED_AT_MOST} files.")
    if said.timed_out:
        raise too_many
    try:
        found = json.loads(said.stdout)
        directories, databases = map(str, found["directories"]), map(str, found["databases"])
        functions, is_too_large = int(found["functions"]), bool(found["tooMany"])
        if is_too_large:
            raise too_many
        return static_or_process.judge(project, set(directories), list(databases), functions,
                                       live_database)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise BadProject("The builder did not say what was built.") from error


def _hear(agent: AgentClient, script: str, most_bytes: int) -> bytes:
    """All that a short script prints; raises AgentTimeout for one that did not come to its end."""
    said = agent.exec(["/bin/sh", "-c", script], timeout_ms=_TALK_MS, grace_s=_GRACE_S,
                      cap_bytes=most_bytes)
    if said.timed_out:
        raise AgentTimeout("the builder is too busy to say how far it is")
    return said.stdout


def _read(agent: AgentClient, path: str) -> str | None:
    try:
        return agent.read_file(path, _TEXT_MOST, 10.0).decode("utf-8")
    except AgentRefused as refusal:
        if refusal.code == "not_found":
            return None
        raise BadProject(f"{path} cannot be read: {refusal.message}.") from refusal
    except UnicodeDecodeError as error:
        raise BadProject(f"{path} is not UTF-8.") from error
