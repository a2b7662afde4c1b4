"""The coding agents themselves, in real guests, are verified, and have one turn each with a model
behind the LLM proxy, told as docs/llm.md says."""
import json

import pytest

from config import guest_gateway
from models.database import connect, connection, database
from models.usage import LlmCall
from services.llm.sandbox_url import secret_of
from tests.clients.agents import TOLD, has_a_turn, install_log, tell
from tests.clients.guest_gateway import config_of, running_gateway
from tests.fakes.llm_upstream import LlmUpstream
from tests.stack.waiting import until

pytestmark = pytest.mark.vm


@pytest.fixture(scope="module")
def upstream(vm_stack, tmp_path_factory):
    """Behind the gateway of the stack with presets."""
    made = LlmUpstream()
    connect(vm_stack.settings.database_url, pool_size=2)
    with running_gateway(vm_stack, config_of(made, made), tmp_path_factory.mktemp("gateway")):
        yield made
    database.close_all()
    made.close()


def installed(persona, sandbox, slug):
    """What the image records of an agent."""
    record = persona.exec(sandbox, "cat", "/opt/svc/presets/presets.json")["stdout"]
    return json.loads(record)["presets"][slug]


def calls_of(sandbox):
    with connection():
        return list(LlmCall.select().where(LlmCall.sandbox_id == sandbox))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("slug", TOLD)
def test_an_agent_is_verified_and_has_a_turn_with_a_model(vm_stack, presets_alice, upstream, slug):
    made = presets_alice.post("/v1/sandboxes", json={"size": "small", "template": slug}).json()
    sandbox = made["id"]
    try:
        assert (made["status"], made["templateStatus"]) == ("running", "ready"), made
        entry = installed(presets_alice, sandbox, slug)
        assert install_log(presets_alice, made)[-1] == f"{slug} {entry['version']} is ready"
        node = presets_alice.exec(sandbox, "sh", "-c", "readlink -f $(command -v node)")["stdout"]
        assert node == "/usr/local/bin/bun\n"
        url = f"{guest_gateway.URL}/s/{secret_of(vm_stack.settings, sandbox)}"
        tell(presets_alice, sandbox, slug, url)
        asked = len(upstream.seen)
        said = has_a_turn(presets_alice, sandbox, slug, url)
        assert said["exitCode"] == 0 and "w0 w1" in said["stdout"], said
        assert len(upstream.seen) > asked
        until(lambda: (calls := calls_of(sandbox)) and all(call.ended_at for call in calls))
        calls = calls_of(sandbox)
        assert all(call.complete and call.output_tokens for call in calls)
    finally:
        presets_alice.delete(f"/v1/sandboxes/{sandbox}")
