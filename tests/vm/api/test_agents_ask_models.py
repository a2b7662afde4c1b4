"""The coding agents themselves, in real guests, have one turn each with a model behind the LLM
proxy, told as docs/llm.md says."""
import json

import pytest

from config import guest_gateway
from models.database import connect, connection, database
from models.usage import LlmCall
from services.llm.sandbox_url import secret_of
from tests.clients.guest_gateway import config_of, running_gateway
from tests.fakes.llm_upstream import LlmUpstream

pytestmark = pytest.mark.vm
# Path in the home -> what it holds, and the line that asks.
TOLD = {
    "pi": ({".pi/agent/models.json": json.dumps({"providers": {"svc": {
        "baseUrl": "{url}/v1", "api": "openai-completions", "apiKey": "none",
        "models": [{"id": "one"}]}}})},
        "pi --provider svc --model one -p 'Say something.'"),
    "codex": ({".codex/config.toml": 'model = "one"\nmodel_provider = "svc"\n'
               '[model_providers.svc]\nname = "svc"\nbase_url = "{url}/v1"\n'
               'wire_api = "responses"\n'},
              "codex exec --skip-git-repo-check 'Say something.'"),
    "claude": ({}, "ANTHROPIC_BASE_URL={url} ANTHROPIC_API_KEY=none ANTHROPIC_MODEL=claude-x"
               " claude -p 'Say something.'"),
}


@pytest.fixture(scope="module")
def upstream(vm_stack, tmp_path_factory):
    """Behind the gateway of the stack with presets."""
    made = LlmUpstream()
    connect(vm_stack.settings.database_url, pool_size=2)
    with running_gateway(vm_stack, config_of(made, made), tmp_path_factory.mktemp("gateway")):
        yield made
    database.close_all()
    made.close()


@pytest.mark.parametrize("slug", TOLD)
def test_an_agent_has_a_turn_with_a_model(vm_stack, presets_alice, upstream, slug):
    made = presets_alice.post("/v1/sandboxes", json={"size": "small", "template": slug}).json()
    sandbox = made["id"]
    try:
        url = f"{guest_gateway.URL}/s/{secret_of(vm_stack.settings, sandbox)}"
        files, line = TOLD[slug]
        for path, text in files.items():
            presets_alice.request(
                "PUT", f"/v1/sandboxes/{sandbox}/uploads/{path}",
                content=text.replace("{url}", url).encode()).raise_for_status()
        presets_alice.exec(sandbox, "chown", "-R", "user:user", "/home/user")
        asked = len(upstream.seen)
        said = presets_alice.exec(
            sandbox, "su", "user", "-c", f"cd && {line.replace('{url}', url)} </dev/null",
            timeoutMs=180_000)
        assert said["exitCode"] == 0 and "w0 w1" in said["stdout"], said
        assert len(upstream.seen) > asked
        with connection():
            calls = list(LlmCall.select().where(LlmCall.sandbox_id == sandbox))
        assert calls and all(call.complete and call.output_tokens for call in calls)
    finally:
        presets_alice.delete(f"/v1/sandboxes/{sandbox}")
