"""The operator's commands, run in this process, which takes a tenth of the time of one of their
own."""
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from click.testing import CliRunner

from app.operator.__main__ import main
from config.settings import get_settings
from models.database import database


def run_operator(environ: Mapping[str, str], *words: str) -> tuple[int, str, str]:
    """`python -m app.operator WORDS` in an environment: its exit code, what it printed, and what it
    complained of."""
    with _database_kept():
        get_settings.cache_clear()
        try:
            done = CliRunner().invoke(main, words, env=dict(environ), prog_name="svc-admin")
        finally:
            get_settings.cache_clear()
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exc_info
    return done.exit_code, done.stdout, done.stderr


def told_operator(environ: Mapping[str, str], *words: str) -> str:
    """What a command printed that has to succeed."""
    code, printed, complaint = run_operator(environ, *words)
    assert code == 0, printed + complaint
    return printed


@contextmanager
def _database_kept() -> Iterator[None]:
    """Point this process at its own database again, whatever the block did."""
    name, options = database.database, dict(database.connect_params)
    pool = {
        "max_connections": database._max_connections,
        "stale_timeout": database._stale_timeout,
        "timeout": database._wait_timeout,
    }
    if name is not None:
        database.close_all()
    try:
        yield
    finally:
        database.close_all()
        if name is not None:
            database.init(name, **pool, **options)
