"""Whose room the bodies of a call take."""
import pytest
from flask import Flask, g

from app.http import held
from app.http.bodies import buffers
from config.settings import Settings
from services.accounts.principals import Credential, Principal
from services.errors import Unavailable

ROOM_BYTES = 8 * 1024 * 1024
MAILER = Principal(Credential.SERVICE, "svc:mailer", None)


@pytest.fixture
def app():
    """One with room for two owners who take all that is theirs."""
    made = Flask("test")
    held.install(made)
    buffers.install(made, Settings(buffer_mb=ROOM_BYTES // 1024**2))
    return made


@pytest.mark.parametrize(("first", "second", "is_shared"), [
    (None, None, True), (None, MAILER, False), (MAILER, MAILER, True),
    (MAILER, Principal(Credential.SERVICE, "svc:other", None), False)])
def test_a_service_for_nobody_has_room_of_its_own(app, first, second, is_shared):
    with app.test_request_context():
        g.principal = first
        buffers.current_account().require(ROOM_BYTES // 2)
        del g.account
        g.principal = second
        if is_shared:
            with pytest.raises(Unavailable):
                buffers.current_account().require(1)
        else:
            buffers.current_account().require(ROOM_BYTES // 2)
