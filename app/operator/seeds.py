"""Accounts and credentials for development and tests; running it again keeps every secret that
still works."""
import secrets
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import click

from app.identity.local_authority import LocalAuthority
from app.identity.signing_keys import KeyDirectory
from config.env_file import read_env
from config.settings import Settings, get_settings
from models.database import connection, now
from models.states import Plan
from models.users import User
from services.accounts import api_keys, tokens, users
from services.errors import Unauthenticated

# Development keys are dated back, so that the hourly allowance is left to whoever tries the service
# out.
KEY_AGE = timedelta(hours=1)
# Who there is: the owner, somebody without a paid plan, and a stranger.
PERSONAS = {"ALICE": Plan.LEGACY_PRO, "BOB": Plan.FREE, "MALLORY": Plan.LEGACY_PRO}


def seed(settings: Settings, known: Mapping[str, str]) -> dict[str, str]:
    """Make what is missing and return all the values, API key first."""
    accounts: dict[str, str] = {}
    owners: dict[str, User] = {}
    for name, plan in PERSONAS.items():
        email, password = f"{name.lower()}@example.test", known.get(f"SVC_{name}_PASSWORD", "")
        owners[name], password = _account(email, password, plan)
        accounts |= {f"SVC_{name}_EMAIL": email, f"SVC_{name}_PASSWORD": password}
    return {
        "SVC_API_KEY": _api_key(owners["ALICE"], known.get("SVC_API_KEY", "")),
        **accounts,
        "SVC_SERVICE_TOKEN": _service_token(settings, known.get("SVC_SERVICE_TOKEN", "")),
    }


def _account(email: str, password: str, plan: Plan) -> tuple[User, str]:
    user = users.find_by_email(email)
    if user is None:
        password = password or secrets.token_urlsafe(12)
        return users.create(email, password, plan), password
    users.set_plan(user, plan)
    try:
        return users.sign_in(email, password), password
    except Unauthenticated:
        password = secrets.token_urlsafe(12)
        users.set_password(user, password)
        return user, password


def _api_key(owner: User, secret: str) -> str:
    try:
        if api_keys.authenticate(secret).id == owner.id:
            return secret
    except Unauthenticated:
        pass
    with connection():
        return api_keys.issue(owner, "development", created_at=now() - KEY_AGE).secret


def _service_token(settings: Settings, text: str) -> str:
    keys = KeyDirectory(settings.signing_keys_dir)
    keys.ensure(settings.jwt_algorithms[0])
    try:
        if tokens.verify(settings, LocalAuthority(settings),
                         text).audience is tokens.Audience.SERVICE:
            return text
    except Unauthenticated:
        pass
    return tokens.mint_service_token(settings, keys.get_signing(), "development", "").text


@click.command("seed-dev")
@click.option("--existing", type=click.Path(path_type=Path),
              help="KEY=VALUE lines; secrets that work are kept.")
def seed_dev(existing: Path | None) -> None:
    """Make the development accounts, an API key and a service token; prints KEY=VALUE lines."""
    known = read_env(existing) if existing else {}
    for name, value in seed(get_settings(), known).items():
        click.echo(f"{name}={value}")
