"""The commands `webhooks ...` of an operator: list events, send them again, try receivers."""
import json
from datetime import timedelta

import pytest
from click.testing import CliRunner

from app.operator import __main__ as admin
from config import settings as configuration
from models.database import connection, database, now
from models.events import Delivery, DeliveryAttempt, Event
from models.states import AttemptOutcome
from services.events.receivers import webhook_options
from tests.rows.ledger import dropped, occur

pytestmark = pytest.mark.usefixtures("fresh_rows")


@pytest.fixture(autouse=True)
def held(fresh_rows):
    """An empty ledger and a connection for the test."""
    with connection():
        database.execute_sql("TRUNCATE events CASCADE")
        yield


@pytest.fixture
def operator(postgres_url, monkeypatch):
    """Runs `webhooks ...` as an operator would, with two receivers configured."""
    for name, value in {"SVC_DATABASE_URL": postgres_url, "SVC_WEBHOOK_SECRETS": "s",
                        "SVC_WEBHOOK_RECEIVER_URL": "http://one.test/x,http://two.test/y"}.items():
        monkeypatch.setenv(name, value)
    configuration.get_settings.cache_clear()
    yield lambda *words: CliRunner().invoke(admin.main, ["webhooks", *words])
    configuration.get_settings.cache_clear()


@pytest.fixture
def names(operator):
    return [receiver.name for receiver in webhook_options(configuration.get_settings()).receivers]


def test_an_operator_lists_and_inspects(operator, names):
    event_id = dropped(*names)
    DeliveryAttempt.create(delivery=Delivery.get().id, number=1, sender="s", started_at=now(),
                           duration_ms=12.3, outcome=AttemptOutcome.FAILED, http_status=500,
                           reason="HTTP 500")
    kept, = occur()
    listed = operator("list").output
    assert event_id in listed and kept in listed and f"{names[0]}=dropped/0" in listed
    assert kept not in operator("list", "--state", "dropped").output
    assert operator("list", "--type", "sandbox.started").output == ""
    (told,) = json.loads(operator("list", "--state", "dropped", "--json").output)
    assert told["id"] == event_id and told["deliveries"][0] == {
        "receiver": names[0], "state": "dropped", "attempts": 0}
    shown = operator("show", event_id).output
    assert Event.get_by_id(event_id).body in shown
    assert "failed in 12 ms HTTP 500" in shown
    missing = operator("show", "evt_none")
    assert missing.exit_code == 1 and "There is no event evt_none" in missing.output


def test_an_operator_sends_again(operator, names):
    event_id = dropped(*names)
    only = ("redeliver", event_id, "--receiver", names[1])
    for option in ("--state=all", "--since=2026-01-31", "--until=2026-01-31", "--subject=x"):
        refused = operator(*only, option)
        assert refused.exit_code == 2 and "is for a range" in refused.output
    assert operator(*only, "--dry-run").output == "1 deliveries would be made\n"
    assert operator(*only).output == "1 deliveries made\n"
    assert operator(*only, "--dry-run").output == "0 deliveries would be made\n", "is under way"
    since, until = (now() - timedelta(hours=1)).isoformat(), (
        now() + timedelta(hours=1)
    ).isoformat()
    assert "1 deliveries would be made" in operator("redeliver", "--since", since, "--until", until,
                                                    "--dry-run").output
    assert "1 deliveries made" in operator("redeliver", "--since", since, "--until", until).output
    assert operator("redeliver").exit_code == 1
    assert operator("redeliver", event_id, "--receiver", "nobody").exit_code == 1
    assert operator("list", "--since", "yesterday").exit_code == 2


def test_an_operator_tries_the_receivers(operator, names):
    answer = operator("send-test", "--wait", "0")
    assert answer.exit_code == 0
    assert Event.get().type == "webhook.test" and Event.get().id == answer.output.strip()
    assert operator("send-test", "--wait", "0.3").exit_code == 1, "no sender runs here"


def test_the_commands_are_part_of_the_operators_program(operator, postgres_url):
    kept, = occur()
    assert kept in CliRunner().invoke(admin.main, ["webhooks", "list"]).output
