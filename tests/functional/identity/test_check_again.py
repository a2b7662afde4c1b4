"""What ends an open shell's credential: what was good once is looked at again, outside of any
request."""
from datetime import timedelta

import pytest

from app.http.credentials import API_KEY, SERVICE, USER_JWT, check_again
from app.wiring import get_attached
from models.database import connection, now
from models.users import ApiKey, User
from services.accounts import tokens, users
from services.accounts.principals import Principal
from services.errors import Unauthenticated


@pytest.fixture
def wired(edge):
    return get_attached(edge.api.application)


def secret_of(headers):
    return headers["Authorization"].removeprefix("Bearer ")


def stands(wired, principal, secret):
    try:
        check_again(wired, principal, secret)
    except Unauthenticated:
        return False
    return True


@pytest.mark.parametrize("changes", [{"revoked_at": now()}, {"expires_at": now()}])
def test_a_key_until_it_is_revoked_or_expires(edge, wired, owner, changes):
    secret, principal = secret_of(edge.key(owner)), Principal(API_KEY, owner.id, owner)
    assert stands(wired, principal, secret)
    with connection():
        ApiKey.update(**changes).where(ApiKey.owner == owner.id).execute()
    assert not stands(wired, principal, secret)


def test_a_users_token_beyond_its_minutes_but_not_beyond_its_account(edge, wired, owner):
    expired = tokens.mint_user_token(edge.settings, edge.keys.get_signing(), owner, "tests").text
    principal = Principal(USER_JWT, owner.id, owner)
    assert stands(wired, principal, expired + "x"), "what it says is not looked at any more"
    with connection():
        User.update(disabled_at=now() - timedelta(seconds=1)).where(User.id == owner.id).execute()
    assert not stands(wired, principal, expired)


def test_an_account_that_is_disabled_ends_every_kind(edge, wired, owner):
    key = secret_of(edge.key(owner))
    service = edge.people["SVC_SERVICE_TOKEN"]
    found = {key: Principal(API_KEY, owner.id, owner),
             service: Principal(SERVICE, "svc:tests", owner)}
    assert all(stands(wired, principal, secret) for secret, principal in found.items())
    users.set_disabled(owner, disabled=True)
    assert not any(stands(wired, principal, secret) for secret, principal in found.items())


def test_a_service_token_until_it_is_revoked(edge, wired, owner):
    minted = tokens.mint_service_token(edge.settings, edge.keys.get_signing(), "shells", "")
    principal = Principal(SERVICE, "svc:shells", owner)
    assert stands(wired, principal, minted.text)
    tokens.revoke(minted.jti)
    assert not stands(wired, principal, minted.text)
