"""A real guest asks a model at its own `$SVC_AI_URL`: before and after a sleep, and in a fork."""
import json

import pytest

from config import guest_gateway
from models.database import connect, connection, database
from models.usage import LlmCall
from services.llm.sandbox_url import secret_of
from tests.clients.guest_gateway import config_of, models_behind, question
from tests.fakes.llm_upstream import LlmUpstream

pytestmark = pytest.mark.vm
OWN = "$SVC_AI_URL"
OFFERED = {"one", "both"}
CHAT = f"-d '{json.dumps(question(stream=True))}' -H 'Content-Type: application/json'"


@pytest.fixture(scope="module")
def upstream(vm_stack, tmp_path_factory):
    """Behind the proxy of the stack."""
    made = LlmUpstream()
    connect(vm_stack.settings.database_url, pool_size=2)
    with models_behind(vm_stack, config_of(made, made), tmp_path_factory.mktemp("gateway")):
        yield made
    database.close_all()
    made.close()


@pytest.fixture
def machine(vm_alice, upstream):
    made = vm_alice.create()["id"]
    yield made
    vm_alice.delete(f"/v1/sandboxes/{made}")


def curl(persona, sandbox_id, url, words=""):
    """Status and body that curl in a guest gets; `url` and `words` are read by its shell."""
    line = f'curl -sS -m 60 -w "\\n%{{http_code}}" {words} "{url}"'
    result = persona.exec(sandbox_id, "sh", "-c", line)
    assert result["exitCode"] == 0, result
    body, _, status = result["stdout"].rpartition("\n")
    return int(status), body


def models_of(persona, sandbox_id):
    """The models of OpenAI's protocol that are offered at the guest's own address."""
    status, body = curl(persona, sandbox_id, f"{OWN}/v1/models")
    assert status == 200, body
    return {model["id"] for model in json.loads(body)["data"]}


def billed(sandbox_id):
    with connection():
        return LlmCall.select().where(LlmCall.sandbox_id == sandbox_id).count()


def test_a_guest_asks_a_model_and_so_does_its_copy(vm_stack, vm_alice, machine):
    base = f"{guest_gateway.URL}/s/{secret_of(vm_stack.settings, machine)}"
    assert models_of(vm_alice, machine) == OFFERED
    status, body = curl(vm_alice, machine, f"{OWN}/v1/chat/completions", CHAT)
    assert status == 200 and "w4" in body and body.rstrip().endswith("[DONE]")
    vm_alice.post(f"/v1/sandboxes/{machine}/hibernate").raise_for_status()
    vm_alice.post(f"/v1/sandboxes/{machine}/wake").raise_for_status()
    assert curl(vm_alice, machine, f"{base}/v1/chat/completions", CHAT)[0] == 200
    assert billed(machine) == 2

    copy = vm_alice.post(f"/v1/sandboxes/{machine}/fork", json={}).raise_for_status().json()["id"]
    own = f"{guest_gateway.URL}/s/{secret_of(vm_stack.settings, copy)}"
    try:
        vm_alice.wait_for(copy, "running")
        assert vm_alice.exec(copy, "sh", "-c", f"echo {OWN}")["stdout"].strip() == own
        assert models_of(vm_alice, copy) == OFFERED
        # What came with the memory has the source's address.
        for address in (OWN, base):
            assert curl(vm_alice, copy, f"{address}/v1/chat/completions", CHAT)[0] == 200
        assert (billed(machine), billed(copy)) == (2, 2)
        assert curl(vm_alice, machine, f"{own}/v1/models")[0] == 403
    finally:
        vm_alice.delete(f"/v1/sandboxes/{copy}")
