"""The operator's commands, run in this process, which takes a tenth of the time of one of their
own."""
from collections.abc import Mapping

from click.testing import CliRunner

from app.operator.__main__ import main
from config.settings import get_settings
from models.database import database


def run_operator(environ: Mapping[str, str], *words: str) -> tuple[int, str, str]:
    """`python -m app.operator WORDS` in an environment: its exit code, what it printed, and what it
    complained of.

    Afterwards this process is connected to the database of that environment.
    """
    get_settings.cache_clear()
    try:
        done = CliRunner().invoke(main, words, env=dict(environ), prog_name="svc-admin")
    finally:
        get_settings.cache_clear()
        database.close_all()
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exc_info
    return done.exit_code, done.stdout, done.stderr
