"""Says what a project's build is to be, and what was built: pure, from what its files are.

1. `svc.json` says it; what it leaves out is read off `package.json`. 2. After the build the output
is looked for where it was said to be, or where builds put it; the project's directory itself is
one if nothing is to be started. 3. The claims of the file decide nothing: an app is static only if
there is an output with an `index.html`, no database and no function (contract, Deploy rule 3), and
`svc.json` has no start command.
"""
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

FILE = "svc.json"
OUTPUTS = ("dist", "build", "public")
_TEXT_MOST, _PATH_MOST = 4096, 256


class BadProject(Exception):
    """The project cannot be deployed as it is; the text is for the one who asked."""


@dataclass(frozen=True)
class Project:
    """What a project's files say: commands as shell lines, paths relative to its directory.
    `must_start` is True if `svc.json` itself has a start command."""

    build: str | None
    output: str | None
    start: str | None
    database: str | None
    must_start: bool = False


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
                   must_start="start" in said)


@dataclass(frozen=True)
class Built:
    """What there is after the build: `output` is the directory that is served, None if the app is
    served by its own process."""

    output: str | None
    start: str | None
    database: str | None
    functions: int

    @property
    def is_static(self) -> bool:
        """Whether files alone make the app."""
        return self.output is not None


def judge(project: Project, directories: Collection[str], databases: Collection[str],
          functions: int) -> Built:
    """What was built. `directories` are those of the candidates that hold an `index.html`,
    `databases` the SQLite files of the tree, `functions` the files in `functions/`.

    Raises BadProject for a project with neither an output nor a start command.
    """
    database = project.database or next(iter(sorted(databases)), None)
    if database is not None and not _is_text(database):
        raise BadProject("The name of a SQLite file of the project is not UTF-8.")
    output = next((name for name in candidates(project) if name in directories), None)
    served = database is not None or functions > 0 or project.must_start
    if output is not None and not served:
        return Built(output, None, None, 0)
    if project.start is None:
        if served:
            raise BadProject("The app has a database or functions, so it needs a start command:"
                             f" `start` in {FILE}, or a start script in package.json.")
        where = " nor in ".join(candidates(project))
        raise BadProject(f"Nothing to serve: there is no index.html in {where}, and no start"
                         " command.")
    return Built(None, project.start, database, functions)


def candidates(project: Project) -> list[str]:
    """Directories in which an `index.html` is looked for after the build, the first one counts."""
    if project.output:
        return [project.output]
    return list(OUTPUTS) if project.start else [*OUTPUTS, "."]


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
    if not _is_text(value, _TEXT_MOST) or not value.strip():
        raise BadProject(f"`{name}` in {FILE} must be a command of at most {_TEXT_MOST}"
                         " characters.")
    return value


def _path(said: Mapping[str, Any], name: str) -> str | None:
    """A relative path without `..`, normalised."""
    value = said.get(name)
    if value is None:
        return None
    if not _is_text(value, _PATH_MOST) or not value:
        raise BadProject(f"`{name}` in {FILE} must be a path of at most {_PATH_MOST} characters.")
    parts = [part for part in value.split("/") if part not in ("", ".")]
    if value.startswith("/") or ".." in parts:
        raise BadProject(f"`{name}` in {FILE} must stay in the project.")
    return "/".join(parts) or "."


def _is_text(value: object, most: int | None = None) -> bool:
    """Whether rows and guests take a value: JSON has halves of characters, names of files any
    bytes."""
    if not isinstance(value, str) or "\0" in value or (most is not None and len(value) > most):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
