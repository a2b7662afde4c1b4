"""Of what is said to a model and by it, and of the keys to it, nothing is in a log, in Redis or in
Postgres."""
import contextlib

import pytest

from tests.clients.guest_gateway import question
from tests.fakes.llm_upstream import KEY
from tests.host.written import everything, in_logs

SAID, TOLD = "xyzzy-of-the-prompt", "plugh-of-a-tool"
# It is kept with a call, and so shows that the search looks at the right places.
MODEL = "claude-of-this-test"
MESSAGES = "/v1/messages"
MODELS = {"/v1/chat/completions": "one", "/v1/responses": "one", MESSAGES: MODEL}


def places(stack, log, *secrets):
    """Where any of `secrets` stands, and where the name of the model does."""
    found, named = [], set()
    for place, content in (*everything(stack), *in_logs(log.parent)):
        if place == "log llm.json":
            continue  # the operator's own
        found += [f"{secret} in {place}" for secret in secrets if secret.encode() in content]
        if MODEL.encode() in content:
            named.add(place)
    return found, named


def body_of(model, **more):
    """A question whose texts would be found."""
    return question(model, text=SAID, system=SAID, user=SAID, metadata={"user_id": SAID},
                    tools=[{"name": TOLD, "description": TOLD}], **more)


def test_of_a_guest_s_calls(sim_stack, asker, upstream, log):
    upstream.refusals.extend([(500, {}), (400, {}), (401, {})])
    for path, model in MODELS.items():
        for stream in (True, False):
            asker.ask(path, body_of(model, stream=stream))
    asker.ask(f"/v1/{SAID}", body_of("one"))
    asker.ask("/v1/chat/completions", f'{{"{SAID}'.encode())
    upstream.cut_after = 3
    with contextlib.suppress(Exception):
        asker.ask("/v1/chat/completions", body_of("one", stream=True))
    with contextlib.closing(asker.connect()) as link:
        link.sendall(f"POST /s/{asker.secret}/{SAID} NOHTTP\r\nA {SAID}\r\n\r\n".encode())
        link.recv(1000)
    asker.last_call()
    found, named = places(sim_stack, log, SAID, TOLD, KEY, asker.secret,
                          asker.secret.partition(".")[2], "w0 w1", '"w0 ')
    assert found == []
    assert named == {"table llm_calls", "table llm_tallies"}
    assert "an upstream broke its answer off" in log.read_text(), "it is the right log"


@pytest.mark.parametrize("stream", [True, False])
def test_of_a_service_s_calls_by_the_api_s_host(sim_stack, http, token, upstream, alice_id, log,
                                                stream):
    body = body_of(MODEL, stream=stream)
    for refusal in (500, 400, 401, None):
        if refusal:
            upstream.refusals.append((refusal, {}))
        answer = http.post(MESSAGES, json=body, headers={"X-On-Behalf-Of": alice_id})
        assert (answer.status_code == 200) is (refusal is None)
    http.post(MESSAGES, content=f'{{"{SAID}'.encode())
    http.post(MESSAGES, json=body, headers={"Authorization": f"Bearer {SAID}"})
    upstream.cut_after = 3
    if stream:
        with contextlib.suppress(Exception):
            http.post(MESSAGES, json=body)
    found, named = places(sim_stack, log, SAID, TOLD, KEY, token, "w0 w1", '"w0 ')
    assert found == []
    assert named == {"table llm_calls", "table llm_tallies"}
