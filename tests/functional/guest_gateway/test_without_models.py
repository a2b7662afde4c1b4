"""A guest gateway without a configuration of models: whoever may ask is told that there is no
proxy."""
import json

import pytest

from models.database import connect, connection, database
from models.usage import LlmCall
from tests.clients.guest_gateway import question, running_gateway

NO_PROXY = "This installation has no LLM proxy."


@pytest.fixture(scope="module")
def gateway(sim_stack, tmp_path_factory):
    """Its process, and the file of what it says."""
    connect(sim_stack.settings.database_url, pool_size=5)
    with running_gateway(sim_stack, None, tmp_path_factory.mktemp("gateway")) as running:
        yield running
    database.close_all()


@pytest.mark.parametrize(("path", "body"), [
    ("/v1/models", None), ("/v1/chat/completions", question()), ("/v1/responses", question()),
    ("/v1/messages", question("claude-x")), ("/v1/messages", b"{"), ("/nothing", None)])
def test_a_guest_s_call_is_404_and_is_not_counted(asker, path, body):
    status, _, answer = asker.ask(path, body)
    assert (status, json.loads(answer)["error"]) == (404, {
        "type": "not_found_error", "code": "not_found_error", "message": NO_PROXY, "param": None})
    with connection():
        assert not LlmCall.select().where(LlmCall.sandbox_id == asker.sandbox_id).exists()


def test_who_may_not_ask_is_told_nothing_of_it(askers):
    one, other = askers
    for secret, status in (("", 401), (other.secret, 403)):
        found, _, answer = one.ask("/v1/chat/completions", question(), secret=secret)
        assert found == status and NO_PROXY.encode() not in answer


def test_a_service_s_call_is_404_in_the_api_s_shape(http):
    for answer in (http.get("/v1/models"), http.post("/v1/messages", json=question("claude-x"))):
        assert (answer.status_code, answer.json()) == (404, {"error": NO_PROXY})
