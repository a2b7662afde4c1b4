"""Says whether a built project is a static app or one with a process of its own. Pure.

1. The output is looked for where it was said to be, or where builds put it; the project's directory
itself is one if nothing is to be started. 2. The claims of `svc.json` decide nothing: an app is
static only if there is an output with an `index.html`, no database and no function (contract,
Deploy rule 3), and `svc.json` has no start command. 3. A database that the app has already keeps
its name unless `svc.json` names another: its rows are moved to where the next version opens them,
whether the project has a file there or none. It is given up only where `svc.json` says
`"database": null`.
"""
from collections.abc import Collection
from dataclasses import dataclass

from services.deploys.projects.manifest import FILE, BadProject, Project, is_text

OUTPUTS = ("dist", "build", "public")


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
          functions: int, live_database: str | None = None) -> Built:
    """What was built. `directories` are those of the candidates that hold an `index.html`,
    `databases` the SQLite files of the tree, `functions` the files in `functions/`, `live_database`
    the name of the database that the app goes on with.

    Raises BadProject for a project with neither an output nor a start command, for one that does
    not say which of its files is that database now, and for one that leaves nothing to open it.
    """
    database = _database(project, databases, live_database)
    if database is not None and not is_text(database):
        raise BadProject("The name of a SQLite file of the project is not UTF-8.")
    output = next((name for name in candidates(project) if name in directories), None)
    served = bool(project.database or databases) or functions > 0 or project.must_start
    if output is not None and not served:
        if database is not None:
            raise BadProject(f"The app has its database in {database}, and this version would be"
                             f" files alone. Name its start command, `start` in {FILE}, to go on"
                             f' with that, or say `"database": null` there to give it up.')
        return Built(output, None, None, 0)
    if project.start is None:
        if served or database is not None:
            raise BadProject("The app has a database or functions, so it needs a start command:"
                             f" `start` in {FILE}, or a start script in package.json.")
        where = " nor in ".join(candidates(project))
        raise BadProject(f"Nothing to serve: there is no index.html in {where}, and no start"
                         " command.")
    return Built(None, project.start, database, functions)


def _database(project: Project, databases: Collection[str],
              live_database: str | None) -> str | None:
    """The name of the database that the version has; None if it has none."""
    if project.gives_up_database:
        if databases:
            raise BadProject(f'`"database": null` in {FILE} says that the app has none, and'
                             f" {min(databases)} in the project is a SQLite file: name it, or leave"
                             " it out of the project.")
        return None
    if project.database or not databases or live_database in databases:
        return project.database or live_database
    if live_database is not None:
        raise BadProject(f"The app has its database in {live_database}, which is not in the project"
                         f" any more, and other SQLite files are: name its database, `database` in"
                         f" {FILE}.")
    return min(databases)


def candidates(project: Project) -> list[str]:
    """Directories in which an `index.html` is looked for after the build, the first one counts."""
    if project.output:
        return [project.output]
    return list(OUTPUTS) if project.start else [*OUTPUTS, "."]
