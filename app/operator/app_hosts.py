"""What an operator does with host names of apps besides their slugs."""
import click

from app.operator.output import as_json, print_rows
from config.settings import get_settings
from services.deploys.apps import host_names


@click.command("app-host-add")
@click.argument("slug")
@click.argument("host")
def app_host_add(slug: str, host: str) -> None:
    """Let the app SLUG be found at HOST, too.

    The name has to lead to an edge, which needs a certificate for it in SVC_CERTIFICATES_DIR.
    """
    host_names.add(get_settings(), slug, host)
    click.echo(f"{host} leads to {slug}.")


@click.command("app-host-remove")
@click.argument("host")
def app_host_remove(host: str) -> None:
    """Let no app be found at HOST any more."""
    host_names.remove(host)
    click.echo(f"{host} leads to no app.")


@click.command("app-host-list")
@as_json
def app_host_list(machine: bool) -> None:
    """Show the host names of apps besides their slugs."""
    print_rows(host_names.list_all(), {
        "HOST": lambda each: each.host,
        "APP": lambda each: each.slug,
        "SINCE": lambda each: each.created_at,
    }, machine=machine)


COMMANDS = (app_host_add, app_host_remove, app_host_list)
