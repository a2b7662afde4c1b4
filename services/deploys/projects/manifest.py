"""Says what a project's build is to be, and how it is started: `svc.json` says it, and what that
leaves out is read off `package.json`. Pure.
"""
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

FILE = "svc.json"
_TEXT_MOST, _PATH_MOST = 4096, 256


class BadProject(Exception):
    """The project cannot be deployed as it is; the text is for the one who asked."""


@dataclass(frozen=True)
class Project:
    """What a project's files say: commands as shell lines, paths relative to its directory.
    `must_start` is True if `svc.json` itself has a start command, `gives_up_database` if it says
    `"database": null`, which is a word and not the want of one."""

    build: str | None
    output: str | None
    start: str | None
    database: str | None
    must_start: bool = False
    gives_up_database: bool = False


def read_project(svc_json: str | None, package_json: str | None) -> Project:
    """What the two files say, None for one that is not there; raises BadProject."""
    said = _object(svc_json, FILE)
    scripts = _object(package_json, "package.json").get("scripts")
    scripts = scripts if isinstance(scripts, Mapping) else {}
    build = _command(said, "build")
    start = _command(said, "start")
    if build is None and isinstance(scripts.get("build"), str):
        build = "bun run build"
    if start is None and isinstance(scripts.get("start"), str):
        start = "bun run start"
    return Project(build, _path(said, "output"), start, _path(said, "database"),
                   must_start="start" in said,
                   gives_up_database="database" in said and said["database"] is None)


def _object(text: str | None, name: str) -> Mapping[str, Any]:
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadProject(f"{name} is not JSON.") from error
    if not isinstance(value, dict):
        raise BadProject(f"{name} does not hold an object.")
    return value


def _command(said: Mapping[str, Any], name: str) -> str | None:
    value = said.get(name)
    if value is None:
        return None
    if not is_text(value, _TEXT_MOST) or not value.strip():
        raise BadProject(f"`{name}` in {FILE} must be a command of at most {_TEXT_MOST}"
                         " characters.")
    return value


def _path(said: Mapping[str, Any], name: str) -> str | None:
    """A relative path without `..`, normalised."""
    value = said.get(name)
    if value is None:
        return None
    if not is_text(value, _PATH_MOST) or not value:
        raise BadProject(f"`{name}` in {FILE} must be a path of at most {_PATH_MOST} characters.")
    parts = [part for part in value.split("/") if part not in ("", ".")]
    if value.startswith("/") or ".." in parts:
        raise BadProject(f"`{name}` in {FILE} must stay in the project.")
    return "/".join(parts) or "."


def is_text(value: object, most: int | None = None) -> bool:
    """Whether rows and guests take a value: JSON has halves of characters, names of files any
    bytes."""
    if not isinstance(value, str) or "\0" in value or (most is not None and len(value) > most):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
