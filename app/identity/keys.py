"""Commands for the signing keys: `python -m app.identity.keys ensure`, `... rotate`."""
import click

from app.signing_keys import KeyDirectory
from config.settings import get_settings


@click.group()
def main() -> None:
    """Manage the signing keys of the identity host."""


@main.command()
def ensure() -> None:
    """Make a signing key unless there is one."""
    settings = get_settings()
    click.echo(KeyDirectory(settings.signing_keys_dir).ensure(settings.jwt_algorithms[0]))


@main.command()
def rotate() -> None:
    """Add a key that signs from now on; old keys go on verifying until their files are removed."""
    settings = get_settings()
    click.echo(KeyDirectory(settings.signing_keys_dir).add(settings.jwt_algorithms[0]))


if __name__ == "__main__":
    main()
