"""What an operator does with versions of templates: list them, remove what nobody uses."""
import click

from app.operator.output import as_json, print_rows
from models.users import User
from services.accounts import users
from services.templates import unused_versions


@click.command("template-list")
@click.argument("email", required=False)
@click.option("--unused", is_flag=True, help="Only versions that nobody uses.")
@as_json
def template_list(email: str | None, unused: bool, machine: bool) -> None:
    """Show the versions of the templates of the account EMAIL, or of the system's catalogue."""
    found = [use for use in unused_versions.list_versions(_namespace(email))
             if not (unused and use.is_used)]
    print_rows(found, {
        "VERSION": lambda use: use.id,
        "LATEST": lambda use: "yes" if use.latest else "",
        "SANDBOXES": lambda use: use.sandboxes,
        "SNAPSHOT": lambda use: use.snapshot_id,
        "CREATED": lambda use: use.created_at,
    }, machine=machine)


@click.command("template-remove")
@click.argument("version")
@click.argument("email", required=False)
def template_remove(version: str, email: str | None) -> None:
    """Remove VERSION (such as web-v3) of a template of EMAIL, or of the system's, if nobody uses
    it."""
    removed = unused_versions.remove_unused(_namespace(email), version)
    click.echo(f"removed; its snapshot is {removed.snapshot_id}")


COMMANDS = (template_list, template_remove)


def _namespace(email: str | None) -> User | None:
    return None if email is None else users.get_named(email)
