"""A real guest asks a model: its address, its secret, before and after a sleep, and in a fork."""
import json

import pytest

from config import guest_gateway
from models.database import connect, connection, database
from models.usage import LlmCall
from services.llm.sandbox_url import secret_of
from tests.clients.guest_gateway import config_of, question, running_gateway
from tests.fakes.llm_upstream import LlmUpstream

pytestmark = pytest.mark.vm


@pytest.fixture(scope="module")
def upstream(vm_stack, tmp_path_factory):
    """Behind the gateway of the stack."""
    made = LlmUpstream()
    connect(vm_stack.settings.database_url, pool_size=2)
    with running_gateway(vm_stack, config_of(made, made), tmp_path_factory.mktemp("gateway")):
        yield made
    database.close_all()
    made.close()


@pytest.fixture
def machine(vm_alice):
    made = vm_alice.create()["id"]
    yield made
    vm_alice.delete(f"/v1/sandboxes/{made}")


def curl(persona, sandbox_id, url, *words):
    """Status and body that curl in a guest gets."""
    result = persona.exec(sandbox_id, "curl", "-sS", "-m", "60", "-w", "\n%{http_code}", *words,
                          url)
    assert result["exitCode"] == 0, result
    body, _, status = result["stdout"].rpartition("\n")
    return int(status), body


def billed(sandbox_id):
    with connection():
        return LlmCall.select().where(LlmCall.sandbox_id == sandbox_id).count()


def test_a_guest_asks_a_model_and_so_does_its_copy(vm_stack, vm_alice, machine, upstream):
    base = f"{guest_gateway.URL}/s/{secret_of(vm_stack.settings, machine)}"
    chat = "-d", json.dumps(question(stream=True)), "-H", "Content-Type: application/json"
    status, body = curl(vm_alice, machine, f"{base}/v1/chat/completions", *chat)
    assert status == 200 and "w4" in body and body.rstrip().endswith("[DONE]")
    vm_alice.post(f"/v1/sandboxes/{machine}/hibernate").raise_for_status()
    vm_alice.post(f"/v1/sandboxes/{machine}/wake").raise_for_status()
    assert curl(vm_alice, machine, f"{base}/v1/chat/completions", *chat)[0] == 200
    assert billed(machine) == 2

    copy = vm_alice.post(f"/v1/sandboxes/{machine}/fork", json={}).raise_for_status().json()["id"]
    try:
        vm_alice.wait_for(copy, "running")
        assert curl(vm_alice, copy, f"{base}/v1/chat/completions", *chat)[0] == 200
        assert (billed(machine), billed(copy)) == (2, 1)
        own = secret_of(vm_stack.settings, copy)
        assert curl(vm_alice, machine, f"{guest_gateway.URL}/s/{own}/v1/models")[0] == 403
    finally:
        vm_alice.delete(f"/v1/sandboxes/{copy}")
