"""What an operator does by hand: `bin/svc-admin --help`, which runs `python -m app.operator` with
the right settings."""
import secrets
from pathlib import Path
from typing import Any

import click
import peewee

from app.identity.signing_keys import KeyDirectory
from app.operator import nodes, operations, sandboxes, seeds
from app.operator.credit import credit
from app.operator.output import as_json, print_json
from app.operator.storage import storage_commands
from app.operator.webhooks import webhooks
from config.settings import SettingsError, get_settings
from models.database import connect, now
from models.states import Plan
from services.accounts import sessions, tokens, users
from services.errors import ServiceError

_PLANS = click.Choice([plan.value for plan in Plan])


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


@click.group(cls=_Operator)
def main() -> None:
    """Look at and manage the accounts, nodes, sandboxes and operations of this installation."""
    settings = get_settings()
    connect(settings.database_url, pool_size=2, application="svc-admin")


@main.command("user-create")
@click.argument("email")
@click.option("--plan", type=_PLANS, default=Plan.FREE.value, show_default=True)
@click.option("--password", help="Generated and shown when left out.")
def user_create(email: str, plan: str, password: str | None) -> None:
    """Make an account."""
    chosen = password or secrets.token_urlsafe(12)
    user = users.create(email, chosen, Plan(plan))
    click.echo(f"id {user.id}")
    if password is None:
        click.echo(f"password {chosen}")


@main.command("user-plan")
@click.argument("email")
@click.argument("plan", type=_PLANS)
def user_plan(email: str, plan: str) -> None:
    """Put an account on another plan."""
    users.set_plan(users.get_by_email(email), Plan(plan))


@main.command("user-password")
@click.argument("email")
def user_password(email: str) -> None:
    """Give an account a new, generated password; its sessions end."""
    chosen = secrets.token_urlsafe(12)
    users.set_password(users.get_by_email(email), chosen)
    click.echo(f"password {chosen}")


@main.command("user-list")
@as_json
def user_list(machine: bool) -> None:
    """Show every account: id, e-mail address, plan, whether it is shut out."""
    found = users.list_all()
    if machine:
        fields = ("id", "email", "plan", "created_at", "disabled_at")
        print_json([{name: getattr(user, name) for name in fields} for user in found])
        return
    for user in found:
        click.echo(
            f"{user.id} {user.email} {user.plan} {'disabled' if user.disabled_at else 'active'}")


@main.command("user-disable")
@click.argument("email")
def user_disable(email: str) -> None:
    """Shut an account out: sessions end, keys and tokens are refused from the next request on."""
    users.set_disabled(users.get_by_email(email), disabled=True)


@main.command("user-enable")
@click.argument("email")
def user_enable(email: str) -> None:
    """Let an account in again; its keys work as before."""
    users.set_disabled(users.get_by_email(email), disabled=False)


@main.command("user-sign-out")
@click.argument("email")
def user_sign_out(email: str) -> None:
    """End every session of an account; tokens got with one last up to SVC_USER_JWT_S seconds
    more."""
    click.echo(f"ended {sessions.end_all(users.get_by_email(email))}")


@main.command("service-token-mint")
@click.argument("name")
@click.option("--app-id", default="", help="Goes into the token's appId claim.")
def service_token_mint(name: str, app_id: str) -> None:
    """Mint a token for the service NAME (`admin` for the administrative routes); shown once, it
    lasts a year."""
    settings = get_settings()
    keys = KeyDirectory(settings.signing_keys_dir)
    keys.ensure(settings.jwt_algorithms[0])
    minted = tokens.mint_service_token(settings, keys.get_signing(), name, app_id)
    click.echo(f"jti {minted.jti}\ntoken {minted.text}")


@main.command("service-token-list")
@click.option("--all", "with_ended", is_flag=True, help="Revoked and expired ones too.")
def service_token_list(with_ended: bool) -> None:
    """Show the service tokens: jti, subject, app id, when each ends, its signing key, its state."""
    for token in tokens.list_service_tokens():
        state = "revoked" if token.revoked_at else "expired" if token.expires_at <= now(
        ) else "valid"
        if with_ended or state == "valid":
            expires = token.expires_at.strftime("%Y-%m-%dT%H:%M:%SZ")
            click.echo(
                f"{token.jti} {token.subject} {token.app_id or '-'} {expires} {token.kid or '-'}"
                f" {state}"
            )


@main.command("service-token-revoke")
@click.argument("jti")
def service_token_revoke(jti: str) -> None:
    """Revoke a service token by its jti."""
    tokens.revoke(jti)
    click.echo("revoked")


@main.command("seed-dev")
@click.option("--existing", type=click.Path(path_type=Path),
              help="KEY=VALUE lines; secrets that work are kept.")
def seed_dev(existing: Path | None) -> None:
    """Make the development accounts, an API key and a service token; prints KEY=VALUE lines."""
    known = seeds.read_lines(existing) if existing else {}
    for name, value in seeds.seed(get_settings(), known).items():
        click.echo(f"{name}={value}")


for command in (*nodes.COMMANDS, *operations.COMMANDS, *sandboxes.COMMANDS):
    main.add_command(command)
main.add_command(credit)
main.add_command(webhooks)
for command in storage_commands:
    main.add_command(command)

if __name__ == "__main__":
    main(prog_name="svc-admin")
