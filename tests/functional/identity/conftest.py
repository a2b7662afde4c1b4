"""An identity host and two API hosts, the second of which has no key directory; guesses at
passwords that begin anew."""

import pytest

from bin.stack import health
from bin.stack.running import private_stack
from models.database import connection
from models.users import LoginThrottle
from services.accounts import users
from tests.stack.edge import CHEAP
from tests.stack.identity_site import SETTINGS, Site
from tests.stack.waiting import until


@pytest.fixture(scope="module")
def site(clean_host):
    stack = private_stack("test-identity", SETTINGS, processes=("api", "identity"))
    try:
        stack.start_servers()
        stack.prepare()
        stack.start("api", "identity")
        until(
            lambda: health.answers(f"{stack.api_url}/health")
            and health.answers(f"{stack.auth_url}/health")
        )
        stack.seed()
        made = Site(stack)
        try:
            yield made
        finally:
            made.close()
    finally:
        stack.destroy()


@pytest.fixture(scope="module")
def apis(site):
    """Two API hosts with two worker processes each; the second has no key directory."""
    return site.stack.api_url, site.start("api")


@pytest.fixture
def clean_slate(edge, monkeypatch):
    """Nobody has guessed yet, and a guess at an account that is not there takes no time."""
    monkeypatch.setattr(users, "NOBODY", CHEAP.hash("nobody"))
    with connection():
        LoginThrottle.delete().execute()
