"""What a sandbox and its owner are told of the LLM proxy: the API in this process on real rows, a
real agent as the guest."""
import pytest

from app.wiring import get_attached
from config.guest_gateway import URL
from models.database import connection
from models.operations import IdempotencyKey
from models.sandboxes import Sandbox
from models.states import SandboxStatus
from nodeworker.handlers.agent_server import configuration
from services.guest_calls import shells
from services.hosts import assignments
from services.llm.sandbox_url import secret_of
from services.sandboxes.agent_servers import AgentServerSpec
from services.sandboxes.caller import Caller
from tests.host.agent_process import TOKEN, start_agent, stop_agent
from tests.host.shell_guest import running_agent
from tests.stack.edge import make_edge

NAMES = ("SVC_AI_URL", "SVC_MEDIA_URL")
CALLERS = {"SVC_AI_URL": "https://mine.test", "OPENAI_BASE_URL": "https://x.test/v1"}


@pytest.fixture(scope="module")
def proxied(postgres_url, redis_url, tmp_path_factory):
    """Both hosts, told that there is an LLM proxy."""
    yield from make_edge(postgres_url, redis_url, tmp_path_factory.mktemp("keys"),
                         llm_config="/nowhere/llm.json", guest_secret="a key of the box")


@pytest.fixture
def agent(tmp_path):
    """The agent that answers for every sandbox of a test."""
    for directory in ("opt/svc", "home/user", "etc/ssh", "run", "var/log"):
        (tmp_path / directory).mkdir(parents=True)
    (tmp_path / "opt/svc/initial-token").write_text(TOKEN + "\n")
    running = start_agent(tmp_path)
    yield running
    stop_agent(running)


def create(edge, headers, **body):
    answer = edge.api.post("/v1/sandboxes", json=body, headers=headers)
    assert answer.status_code == 201, answer.json
    return answer.json


def run_on(agent, sandbox_id):
    """Make `agent` the guest of a sandbox."""
    with connection():
        Sandbox.update(status=SandboxStatus.RUNNING, task=None, agent_port=agent.port,
                       agent_token=TOKEN).where(Sandbox.id == sandbox_id).execute()


def variables(edge, headers, sandbox_id, **body):
    answer = edge.api.post(f"/v1/sandboxes/{sandbox_id}/exec", headers=headers,
                           json={"cmd": "env", "args": [], **body})
    assert answer.status_code == 200, answer.json
    return dict(line.split("=", 1) for line in answer.json["stdout"].splitlines())


def url_of(edge, sandbox_id):
    return f"{URL}/s/{secret_of(edge.settings, sandbox_id)}"


def test_the_sandbox_has_its_url_in_every_answer_until_it_is_stopped(proxied):
    headers = proxied.key(proxied.newcomer())
    made = create(proxied, headers, idempotencyKey="once")
    url = url_of(proxied, made["id"])
    assert made["llmProxyUrl"] == url
    assert create(proxied, headers, idempotencyKey="once") == made
    path = f"/v1/sandboxes/{made['id']}"
    assert proxied.api.get(path, headers=headers).json["llmProxyUrl"] == url
    assert create(proxied, headers)["llmProxyUrl"] != url
    with connection():
        kept = IdempotencyKey.get(IdempotencyKey.key == "once")
        Sandbox.update(status=SandboxStatus.STOPPED).where(Sandbox.id == made["id"]).execute()
    assert url.rpartition("/")[2] not in str(kept.response), "no secret is stored"
    assert "llmProxyUrl" not in proxied.api.get(path, headers=headers).json


def test_without_a_proxy_nothing_is_said_and_nothing_injected(edge, agent):
    headers = edge.key(edge.newcomer())
    made = create(edge, headers)
    assert "llmProxyUrl" not in made
    run_on(agent, made["id"])
    assert not set(NAMES) & set(variables(edge, headers, made["id"]))
    told = assignments.get_assigned(edge.settings, made["id"])
    assert told.process_env == told.env == {}


def test_a_command_has_both_variables_and_no_providers(proxied, agent):
    headers = proxied.key(proxied.newcomer())
    made = create(proxied, headers)
    run_on(agent, made["id"])
    seen = variables(proxied, headers, made["id"])
    assert [seen[name] for name in NAMES] == [url_of(proxied, made["id"])] * 2
    assert [name for name in seen if "BASE" in name or name.startswith(("OPENAI", "ANTHROPIC"))] \
        == []


def test_what_the_caller_passes_wins_at_create_and_at_exec(proxied, agent):
    headers = proxied.key(proxied.newcomer())
    made = create(proxied, headers, env=CALLERS)
    run_on(agent, made["id"])
    own = url_of(proxied, made["id"])
    seen = variables(proxied, headers, made["id"])
    assert {name: seen[name] for name in CALLERS} == CALLERS and seen["SVC_MEDIA_URL"] == own
    for value in ("https://call.test", ""):
        called = variables(proxied, headers, made["id"], env={"SVC_AI_URL": value})
        assert called["SVC_AI_URL"] == value


def test_what_a_node_starts_has_them_too_and_the_owners_win(proxied):
    headers = proxied.key(proxied.newcomer())
    made = create(proxied, headers, env=CALLERS, preferredModel="m")
    told = assignments.get_assigned(proxied.settings, made["id"])
    own = url_of(proxied, made["id"])
    assert told.env == CALLERS and told.process_env == CALLERS | {"SVC_MEDIA_URL": own}
    assert own not in repr(told)
    server = configuration(told, AgentServerSpec("serve", None))["env"]
    assert server == told.process_env | {"SVC_PREFERRED_MODEL": "m"}


def test_a_fork_has_a_url_of_its_own_and_inherits_none(proxied, agent):
    headers = proxied.key(proxied.newcomer())
    source = create(proxied, headers, env={"OWN": "1"})
    run_on(agent, source["id"])
    answer = proxied.api.post(f"/v1/sandboxes/{source['id']}/fork", json={}, headers=headers)
    fork = answer.json
    assert fork["llmProxyUrl"] == url_of(proxied, fork["id"]) != source["llmProxyUrl"]
    run_on(agent, fork["id"])
    seen = variables(proxied, headers, fork["id"])
    assert [seen[name] for name in NAMES] == [fork["llmProxyUrl"]] * 2 and seen["OWN"] == "1"


def test_a_shell_has_the_variables_that_a_command_has(proxied):
    owner = proxied.newcomer()
    made = create(proxied, proxied.key(owner), env={"SVC_MEDIA_URL": "mine"})
    deps, said = get_attached(proxied.api.application).deps, b""
    with running_agent() as guest:
        run_on(guest, made["id"])
        with shells.opened(deps, Caller(owner), made["id"]) as opened:
            opened.shell.send(b'echo "[$SVC_AI_URL] [$SVC_MEDIA_URL]"; exit\n')
            while (piece := opened.shell.receive()) is not None:
                said += piece
    assert f"[{url_of(proxied, made['id'])}] [mine]".encode() in said
