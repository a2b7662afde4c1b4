"""A development server that refuses names it does not know, as Vite does, has a preview at a real
domain only if the edge calls it by a name that it knows."""
import httpx
import pytest

from tests.tls.reloaded import edge_with

DOMAIN = "preview.example.test"
STATES = pytest.mark.parametrize("asleep", [False, True], ids=["awake", "asleep"])


def ask(preview, path):
    """What a visitor of the preview at that domain gets; no certificate of ours is for it."""
    name = preview.host.partition(".")[0] + "." + DOMAIN

    def named(request):
        request.extensions["sni_hostname"] = name
    with httpx.Client(verify=False, trust_env=False, timeout=60,
                      event_hooks={"request": [named]}) as http:
        port = preview.stack.settings.edge_port
        return name, http.get(f"https://127.0.0.1:{port}{path}", headers={"Host": name})


@STATES
def test_it_is_refused_by_the_name_of_the_preview(sim_stack, preview, asleep):
    with edge_with(sim_stack, SVC_PREVIEW_DOMAIN=DOMAIN):
        if asleep:
            preview.sleep()
        name, answer = ask(preview, "/guarded/nonce")
    assert answer.status_code == 403 and name in answer.text


@STATES
def test_it_answers_to_a_name_that_it_knows_and_is_told_the_other(sim_stack, preview, asleep):
    with edge_with(sim_stack, SVC_PREVIEW_DOMAIN=DOMAIN, SVC_PREVIEW_REWRITE_HOST="1"):
        if asleep:
            preview.sleep()
        name, answer = ask(preview, "/guarded/headers")
    assert answer.status_code == 200
    assert answer.json()["Host"] == "localhost:3000"
    assert answer.json()["X-Forwarded-Host"] == name
