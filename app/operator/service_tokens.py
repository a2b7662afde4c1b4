"""What an operator does with the tokens of services: mint, list, revoke."""
import click

from app.identity.signing_keys import KeyDirectory
from app.operator.output import as_json, moment, print_json
from config.settings import get_settings
from models.database import now
from models.users import ServiceToken
from services.accounts import tokens, users


@click.command("service-token-mint")
@click.argument("name")
@click.option("--app-id", default="", help="Goes into the token's appId claim.")
@click.option("--user", "of_user", is_flag=True,
              help="NAME is the email of an account: the token acts as that, and for nobody else.")
def service_token_mint(name: str, app_id: str, *, of_user: bool) -> None:
    """Mint a token for the service NAME (`admin` for the administrative routes); shown once, it
    lasts a year. Only on the host of `identity`, which has the signing keys."""
    settings = get_settings()
    signing = KeyDirectory(settings.signing_keys_dir).get_signing()
    if of_user:
        minted = tokens.mint_service_token_of(settings, signing, users.get_by_email(name), app_id)
    else:
        minted = tokens.mint_service_token(settings, signing, name, app_id)
    click.echo(f"jti {minted.jti}\ntoken {minted.text}")


@click.command("service-token-list")
@click.option("--all", "with_ended", is_flag=True, help="Revoked and expired ones too.")
@as_json
def service_token_list(with_ended: bool, machine: bool) -> None:
    """Show the service tokens: jti, subject, app id, when each ends, its signing key, its state."""
    found = [(token, state) for token in tokens.list_service_tokens()
             if (state := _state(token)) == "valid" or with_ended]
    if machine:
        fields = ("jti", "subject", "app_id", "kid", "issued_at", "expires_at", "revoked_at")
        print_json([{name: getattr(token, name) for name in fields} | {"state": state}
                    for token, state in found])
        return
    for token, state in found:
        click.echo(f"{token.jti} {token.subject} {token.app_id or '-'} {moment(token.expires_at)}"
                   f" {token.kid or '-'} {state}")


def _state(token: ServiceToken) -> str:
    if token.revoked_at:
        return "revoked"
    return "expired" if token.expires_at <= now() else "valid"


@click.command("service-token-revoke")
@click.argument("jti")
def service_token_revoke(jti: str) -> None:
    """Revoke a service token by its jti."""
    tokens.revoke(jti)
    click.echo("revoked")


COMMANDS = (service_token_mint, service_token_list, service_token_revoke)
