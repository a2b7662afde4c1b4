"""The tree of the operator's commands: `bin/svc-admin --help`, which runs `python -m app.operator`
with the right settings."""
from typing import Any

import click
import peewee
from psycopg2.errors import UndefinedColumn, UndefinedTable

from app.operator import (
    accounts,
    app_hosts,
    deploys,
    nodes,
    operations,
    sandboxes,
    service_tokens,
    storage,
    templates,
)
from app.operator.credit import credit
from app.operator.llm import llm
from app.operator.seeds import seed_dev
from app.operator.signing_keys import keys
from app.operator.webhooks import webhooks
from config.settings import SettingsError, get_settings
from models.database import connect
from services.errors import ServiceError


class _Operator(click.Group):
    """Shows what a use case refuses as one sentence instead of a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ServiceError as error:
            raise click.ClickException(error.text) from error
        except SettingsError as error:
            raise click.ClickException(str(error)) from error
        except (peewee.OperationalError, peewee.InterfaceError) as error:
            raise click.ClickException(
                "The database does not answer; SVC_DATABASE_URL says where it is.") from error
        except peewee.ProgrammingError as error:
            if not isinstance(error.orig, (UndefinedColumn, UndefinedTable)):
                raise
            raise click.ClickException(
                "The database does not have the tables of this version yet: `make restart` migrates"
                " it, in production `.venv/bin/python -m bin.run python -m models.migrate`."
            ) from error


@click.group(cls=_Operator)
def main() -> None:
    """Look at and manage the accounts, nodes, sandboxes and operations of this installation."""
    settings = get_settings()
    connect(settings.database_url, pool_size=2, application="svc-admin")


for command in (*accounts.COMMANDS, *app_hosts.COMMANDS, *service_tokens.COMMANDS, *nodes.COMMANDS,
                *operations.COMMANDS, *sandboxes.COMMANDS, *storage.COMMANDS, *templates.COMMANDS,
                *deploys.COMMANDS,
                credit, keys, llm, seed_dev, webhooks):
    main.add_command(command)

if __name__ == "__main__":
    main(prog_name="svc-admin")
