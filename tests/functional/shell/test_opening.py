"""Who may open a shell, with which credentials, and what is answered instead of the 101; on the
shell's host and on the API's own port."""
from concurrent.futures import ThreadPoolExecutor

import psycopg2
import pytest

from tests.clients.shells import PROTOCOL, ShellClient, api_url_of, entry, refused, url_of
from tests.fakes.hostile_guest import FAILURE, RESULT, frame, point_at, serving
from tests.stack.database import query
from tests.stack.waiting import until

HOSTS = {"shell": url_of, "api": api_url_of}


@pytest.fixture(params=HOSTS)
def address(request, sim_stack, box):
    return HOSTS[request.param](sim_stack, box)


@pytest.fixture(params=HOSTS)
def address_of(request, sim_stack):
    return lambda sandbox_id: HOSTS[request.param](sim_stack, sandbox_id)


def service(alice, on_behalf_of):
    token = alice.stack.people["SVC_SERVICE_TOKEN"]
    return {"Authorization": f"Bearer {token}", "X-On-Behalf-Of": on_behalf_of}


def id_of(persona):
    with psycopg2.connect(persona.stack.site.values["SVC_DATABASE_URL"]) as link:
        with link.cursor() as cursor:
            cursor.execute("SELECT id FROM users WHERE email = %s", (persona.email,))
            found = cursor.fetchone()[0]
    link.close()
    return found


FORMS = {
    "header": lambda alice: {"headers": alice.key_headers},
    "header with a user token": lambda alice: {"headers": alice.jwt_headers},
    "service on behalf": lambda alice: {"headers": service(alice, id_of(alice))},
    "query": lambda alice: {"query": f"?access_token={alice.api_key}"},
    "query with a user token": lambda alice: {"query": f"?access_token={alice.jwt}"},
    "key entry": lambda alice: {"protocols": [PROTOCOL, entry("api_key", alice.api_key)]},
    "key entry first": lambda alice: {"protocols": [entry("api_key", alice.api_key), PROTOCOL]},
    "token entry": lambda alice: {"protocols": [PROTOCOL, entry("jwt", alice.jwt)]},
    "all the same": lambda alice: {"headers": alice.key_headers,
                                   "query": f"?access_token={alice.api_key}",
                                   "protocols": [PROTOCOL, entry("api_key", alice.api_key)]},
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_each_form_of_a_credential_opens_a_shell_and_is_not_echoed(address, alice, form):
    given = {"query": "", **form(alice)}
    with ShellClient(address + given.pop("query"), **given) as shell:
        answered = shell.socket.handshake_response
        assert answered.subprotocol == PROTOCOL
        assert alice.api_key not in str(answered.headers)
        shell.type("echo hello-$((1+1)); exit\n")
        shell.until("hello-2")
        assert shell.to_the_end() == 1000


def test_credentials_stay_out_of_the_logs(sim_stack, alice, address):
    secrets = (alice.api_key, entry("api_key", alice.api_key))
    logs = (*sim_stack.site.data_dir.glob("log/shell*"), *sim_stack.site.data_dir.glob("log/api*"))
    assert logs

    def refusals_in_them():
        return sum(log.read_text(errors="replace").count(" 401 ") for log in logs)

    before = refusals_in_them()
    assert refused(f"{address}?access_token=svc_sk_in-the-log-{alice.api_key}").status_code == 401
    with ShellClient(f"{address}?access_token={alice.api_key}",
                     protocols=[PROTOCOL, entry("api_key", alice.api_key)]):
        pass
    until(lambda: refusals_in_them() > before)
    for log in logs:
        text = log.read_text(errors="replace")
        assert not any(secret in text for secret in secrets), log


BAD = {
    "none": {},
    "unknown key": {"Authorization": "Bearer svc_sk_unknown"},
    "another scheme": {"Authorization": "Basic YWxpY2U6"},
    "not base64url": {"Sec-WebSocket-Protocol": f"{PROTOCOL}, svc.api_key.***"},
    "a token as a key": {"Sec-WebSocket-Protocol": f"{PROTOCOL}, {entry('api_key', 'a.b.c')}"},
    "a key as a token": {"Sec-WebSocket-Protocol": f"{PROTOCOL}, {entry('jwt', 'svc_sk_x')}"},
    "no text": {"Sec-WebSocket-Protocol": f"{PROTOCOL}, svc.jwt._____w"},
}


@pytest.mark.parametrize("headers", BAD.values(), ids=BAD)
def test_a_bad_credential_is_401(address, headers):
    answer = refused(address, headers)
    assert answer.status_code == 401 and answer.json()["error"]
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert answer.headers["Connection"] == "close"


def test_two_credentials_that_are_not_the_same_are_refused(address, alice):
    answer = refused(f"{address}?access_token=svc_sk_other", alice.key_headers)
    assert answer.status_code == 401 and "not the same" in answer.json()["error"]


def test_not_the_owner_not_there_not_that_node(address, address_of, alice, mallory):
    assert refused(address, mallory.key_headers).status_code == 403
    assert refused(address, service(alice, "nobody")).status_code == 403
    assert refused(address_of("nosuchsandbx"), alice.key_headers).status_code == 404
    answer = refused(address, {**alice.key_headers, "X-Svc-Node": "elsewhere"})
    assert answer.status_code == 421 and "elsewhere" in answer.json()["error"]


def test_a_stopped_sandbox_is_gone(address_of, alice):
    made = alice.create()["id"]
    alice.delete(f"/v1/sandboxes/{made}")
    answer = refused(address_of(made), alice.key_headers)
    assert answer.status_code == 410 and "stopped" in answer.json()["error"]


def test_one_that_is_being_deleted_is_a_conflict(sim_stack, alice):
    """Nobody stops it while its node's worker is away."""
    made = alice.create()["id"]
    sim_stack.stop("node-ctl")
    try:
        with ThreadPoolExecutor(1) as pool:
            deletion = pool.submit(alice.delete, f"/v1/sandboxes/{made}")
            until(lambda: query(sim_stack, "SELECT 1 FROM sandboxes WHERE id = %s"
                                           " AND task = 'stop'", made))
            for address_of in HOSTS.values():
                answer = refused(address_of(sim_stack, made), alice.key_headers)
                assert answer.status_code == 409 and "stop" in answer.json()["error"]
            sim_stack.start("node-ctl")
            assert deletion.result().status_code == 200
    finally:
        sim_stack.start("node-ctl")
        sim_stack.wait_healthy()


@pytest.mark.parametrize(("changes", "status"), [
    ({"Sec-WebSocket-Version": "8"}, 426), ({"Sec-WebSocket-Version": ""}, 426),
    ({"Sec-WebSocket-Key": "short"}, 400), ({"Sec-WebSocket-Key": ""}, 400),
    ({"Sec-WebSocket-Protocol": "chat"}, 400), ({"Sec-WebSocket-Protocol": ""}, 400),
])
def test_a_handshake_that_is_not_ours(address, alice, changes, status):
    answer = refused(address, {**alice.key_headers, **changes})
    assert answer.status_code == status and answer.json()["error"]
    assert status != 426 or answer.headers["Sec-WebSocket-Version"] == "13"


def test_a_plain_request_is_told_to_upgrade(address, alice, mallory):
    plain = {"Connection": "close", "Upgrade": ""}
    answer = refused(address, {**alice.key_headers, **plain})
    assert answer.status_code == 426 and answer.headers["Upgrade"] == "websocket"
    assert refused(address, {**mallory.key_headers, **plain}).status_code == 403
    assert refused(address, plain).status_code == 401


@pytest.mark.parametrize(("reply", "status"), [
    (frame(FAILURE, {"code": "too_many", "message": "64"}), 429),
    (frame(FAILURE, {"code": "failed", "message": "no terminal"}), 503),
    (frame(RESULT, {"exitCode": 0}), 503), (b"\xff" * 100, 503), (b"", 503),
])
def test_a_guest_that_opens_none(sim_stack, alice, sandbox, reply, status):
    with serving() as guest:
        guest.reply = reply
        point_at(sim_stack, sandbox, guest.server_address[1])
        answer = refused(url_of(sim_stack, sandbox), alice.key_headers)
    assert answer.status_code == status and int(answer.headers["Retry-After"]) > 0
    assert "no terminal" not in answer.text
