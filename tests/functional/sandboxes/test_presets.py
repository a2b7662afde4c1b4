"""POST /v1/sandboxes with `template`, through every process, on simulated machines: they get what
presets.json of their node says."""
import contextlib
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from models.ids import new_id
from tests.stack.database import query
from tests.stack.waiting import until

READY = {"state": "ready", "version": "1.0.0", "reason": ""}
FIELDS = {"template", "templateStatus", "installLogPath"}
WEB_FIELDS = FIELDS | {"servePort", "serveLogPath"}
LOG = "/var/log/svc/preset-pi.log"


@pytest.fixture
def host(sim_stack):
    """Sets what the node has; all presets again afterwards."""
    path = Path(sim_stack.site.values["SVC_NODE_DIR"]) / "presets.json"

    def have(**presets):
        record = {"presets": {slug: READY for slug in ("opencode", "pi", "codex", "claude", "lfg")}}
        record["presets"] |= {slug: READY | entry for slug, entry in presets.items()}
        write(record)

    def write(record):
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps(record))
        draft.rename(path)

    have.write = write
    yield have
    path.unlink(missing_ok=True)


@pytest.fixture
def create(alice, made):
    def send(**body):
        answer = alice.post("/v1/sandboxes", json=body)
        if answer.status_code == 201:
            made.append(answer.json()["id"])
        return answer

    return send


def preset_of(shown):
    return {name: value for name, value in shown.items()
            if name in WEB_FIELDS | {"bootstrapError"}}


def said(alice, sandbox, path=LOG):
    return alice.exec(sandbox, "cat", path)["stdout"].splitlines()


@pytest.mark.parametrize("slug", ["opencode", "pi", "codex", "claude"])
def test_the_answer_comes_when_the_preset_is_ready(alice, create, slug):
    shown = create(template=slug).json()
    assert shown["status"] == "running" and shown["portMap"] == {}
    log = f"/var/log/svc/preset-{slug}.log"
    assert preset_of(shown) == {"template": slug, "templateStatus": "ready", "installLogPath": log}
    assert said(alice, shown["id"], log) == [f"{slug} 1.0.0 is ready"]


def test_lfg_serves_on_8766_now_and_after_sleeps(alice, create):
    shown = create(template="lfg").json()
    assert preset_of(shown) == {
        "template": "lfg", "templateStatus": "ready",
        "installLogPath": "/var/log/svc/preset-lfg.log",
        "servePort": 8766, "serveLogPath": "/var/log/svc/lfg.log"
    }
    assert list(shown["portMap"].values()) == [8766]
    assert alice.exec(shown["id"], "ss")["stdout"] == "8766\n"
    alice.post(f"/v1/sandboxes/{shown['id']}/hibernate")
    woken = alice.post(f"/v1/sandboxes/{shown['id']}/wake").json()
    assert preset_of(woken) == preset_of(shown)
    assert alice.exec(shown["id"], "ss")["stdout"] == "8766\n"


def test_ports_that_are_passed_are_the_ports_of_lfg(create):
    shown = create(template="lfg", ports=[3000]).json()
    assert list(shown["portMap"].values()) == [3000] and shown["servePort"] == 8766
    assert list(create(template="lfg", ports=[]).json()["portMap"].values()) == [8766]


def test_a_preset_makes_a_raw_sandbox_whatever_was_asked(alice, create, sim_stack):
    shown = create(template="pi", skipAppProcesses=False, agentServerSource="serve 4000",
                   agentBootstrap={"a": 1}).json()
    assert query(sim_stack, "SELECT skip_app_processes FROM sandboxes WHERE id = %s",
                 shown["id"]) == [(True,)]
    assert query(sim_stack, "SELECT * FROM agent_servers WHERE sandbox_id = %s", shown["id"]) == []
    assert alice.exec(shown["id"], "ss")["stdout"] == ""


def test_every_answer_about_it_has_the_fields(alice, create):
    shown = create(template="pi").json()
    path = f"/v1/sandboxes/{shown['id']}"
    for answer in (alice.get(path), alice.post(f"{path}/hibernate"), alice.post(f"{path}/wake"),
                   alice.post(f"{path}/extend"), alice.delete(path)):
        assert preset_of(answer.json()) == preset_of(shown)
    assert not preset_of(create().json()), "a plain sandbox has none"


def test_a_preset_that_fails_in_the_guest_is_kept_with_its_last_words(alice, create, host):
    host(pi={"breaks": "pi --version ended with code 1"})
    shown = create(template="pi").json()
    assert shown["status"] == "running" and shown["templateStatus"] == "failed"
    assert shown["bootstrapError"] == said(alice, shown["id"])[-1]
    assert "error" not in shown, "the sandbox itself is well"
    path = f"/v1/sandboxes/{shown['id']}"
    alice.post(f"{path}/hibernate")
    host()
    woken = alice.post(f"{path}/wake").json()
    assert preset_of(woken) == preset_of(shown), "it is not tried again"


def test_one_that_could_not_be_built_says_why(alice, create, host):
    host(pi={"state": "failed", "reason": "its vendor does not answer"})
    shown = create(template="pi").json()
    assert shown["templateStatus"] == "failed"
    assert shown["bootstrapError"] == "its vendor does not answer" == said(alice, shown["id"])[-1]
    assert create(template="codex").json()["templateStatus"] == "ready", "no other suffers"


def test_presets_that_are_being_built_are_waited_for(create, host, sim_stack):
    waiting = ("SELECT 1 FROM operations WHERE state = 'pending'"
               " AND waits_for = 'the agent presets of its node to be built'")
    host.write({"building": "2 of 5"})
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(create, template="pi")
        until(lambda: query(sim_stack, waiting))
        host()
        assert asked.result().json()["templateStatus"] == "ready"


@pytest.mark.slow
def test_presets_that_are_not_built_in_time_fail_and_say_how_to_look(alice, create, host):
    host.write({"building": "2 of 5"})
    shown = create(template="lfg").json()
    assert shown["status"] == "running" and shown["templateStatus"] == "failed"
    for part in ("still being built", "make status"):
        assert part in shown["bootstrapError"]
    assert said(alice, shown["id"], shown["installLogPath"]) == [shown["bootstrapError"]]
    assert "servePort" not in shown, "nothing is served"
    path = f"/v1/sandboxes/{shown['id']}"
    alice.post(f"{path}/hibernate")
    woken = alice.post(f"{path}/wake").json()
    assert woken["status"] == "running" and "error" not in woken, "no service is waited for"


@pytest.mark.slow
def test_a_guest_that_takes_too_long_has_failed(create, host):
    host(pi={"takes": 60})
    shown = create(template="pi").json()
    assert shown["status"] == "running" and shown["templateStatus"] == "failed"
    assert "6 s" in shown["bootstrapError"]


@pytest.mark.slow
def test_a_web_ui_that_does_not_listen_has_failed(create, host):
    host(lfg={"mute": True})
    shown = create(template="lfg").json()
    assert shown["status"] == "running" and shown["templateStatus"] == "failed"
    assert "8766" in shown["bootstrapError"] and "8766" in shown["error"]
    assert shown["servePort"] == 8766, "a wake tries again"


@pytest.mark.slow
def test_a_preset_that_takes_its_time_holds_no_worker(alice, create, host, sim_stack):
    """Longer than a worker may look for: then it is a row that nobody holds."""
    host(pi={"takes": 3})
    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(lambda _: create(template="pi").json(), range(3)))
    for shown in answers:
        assert shown["templateStatus"] == "ready"
        assert len(said(alice, shown["id"])) == 1, "it was made ready once"
        assert query(sim_stack, "SELECT waits_for, attempts FROM operations WHERE sandbox_id = %s",
                     shown["id"]) == [("its agent preset to be ready", 1)]


def test_replays_get_the_first_answer_while_it_is_made_and_ever_after(alice, create, host):
    host(pi={"takes": 2})
    body = {"template": "pi", "idempotencyKey": new_id("key")}
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: create(**body), range(8)))
    assert len({answer.text for answer in answers}) == 1
    path = f"/v1/sandboxes/{answers[0].json()['id']}"
    alice.post(f"{path}/hibernate")
    assert create(**body).text == answers[0].text
    assert create(**body, skipAppProcesses=True).text == answers[0].text
    assert create(**{**body, "template": "codex"}).status_code == 409
    alice.delete(path)
    assert create(**body).text == answers[0].text


def test_an_answer_that_nobody_waited_for_is_kept(alice, create, host, made):
    """The first caller hangs up; by the time of the second the sandbox has been put to sleep."""
    host(pi={"takes": 2})
    body = {"template": "pi", "idempotencyKey": new_id("key")}
    with contextlib.suppress(Exception):
        alice.post("/v1/sandboxes", json=body, timeout=0.5)
    until(lambda: alice.get("/v1/sandboxes").json()["sandboxes"])
    (newest, *_) = alice.get("/v1/sandboxes").json()["sandboxes"]
    alice.wait_for(newest["id"], "running")
    alice.post(f"/v1/sandboxes/{newest['id']}/hibernate")
    shown = create(**body).json()
    assert shown["id"] == newest["id"] and shown["status"] == "running"
    assert shown["templateStatus"] == "ready"


def test_a_deleted_one_is_409_to_whoever_waits_for_it(alice, create, host):
    host(pi={"takes": 4})
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(create, template="pi")
        until(lambda: alice.get("/v1/sandboxes",
                                params={"status": "provisioning"}).json()["sandboxes"])
        (booting,) = alice.get("/v1/sandboxes",
                               params={"status": "provisioning"}).json()["sandboxes"]
        alice.delete(f"/v1/sandboxes/{booting['id']}")
        answer = asked.result()
    assert answer.status_code == 409 and booting["id"] in answer.json()["error"]


def test_copies_of_every_kind_have_the_preset(alice, create, made):
    source = create(template="lfg").json()
    path = f"/v1/sandboxes/{source['id']}"
    taken = alice.post(f"{path}/snapshot").json()["id"]
    packed = alice.post(f"{path}/tarball").json()["id"]
    name = new_id("site")
    alice.post(f"/v1/templates/{name}/latest", json={"snapshotId": taken}).raise_for_status()
    for answer in (alice.post(f"{path}/fork", json={"skipAppProcesses": False}),
                   alice.post("/v1/sandboxes/fork", json={"snapshotId": taken}),
                   alice.post("/v1/sandboxes/fork", json={"snapshotId": packed}),
                   alice.post("/v1/sandboxes", json={"templateId": name})):
        assert answer.status_code == 201, answer.text
        made.append(answer.json()["id"])
        copy = alice.wait_for(answer.json()["id"], "running")
        assert preset_of(copy) == preset_of(source)
        assert list(copy["portMap"].values()) == [8766]
        assert alice.exec(copy["id"], "ss")["stdout"] == "8766\n"
        assert said(alice, copy["id"], copy["installLogPath"]) == ["lfg 1.0.0 is ready"]


def test_a_fork_may_serve_something_else(alice, create, made):
    source = create(template="lfg").json()
    answer = alice.post(f"/v1/sandboxes/{source['id']}/fork", json={
        "startCommand": "serve 3000", "readinessPort": 3000, "ports": [3000]})
    made.append(answer.json()["id"])
    copy = alice.wait_for(answer.json()["id"], "running")
    assert copy["template"] == "lfg" and "servePort" not in copy


@pytest.mark.parametrize("point", ["preset.started", "preset.ended", "runner.parking",
                                   "runner.parked"])
@pytest.mark.slow
def test_a_worker_that_dies_on_the_way_costs_only_time(alice, create, host, fault, point):
    host(pi={"takes": 3})
    fault(point)
    shown = create(template="pi").json()
    assert fault.reached()
    assert (shown["status"], shown["templateStatus"]) == ("running", "ready")
    assert set(said(alice, shown["id"])) == {"pi 1.0.0 is ready"}


@pytest.mark.slow
def test_a_worker_that_dies_when_it_has_given_up_on_presets_does_not_wait_again(
        alice, create, host, fault):
    host.write({"building": "2 of 5"})
    fault("preset.given_up")
    shown = create(template="pi").json()
    assert fault.reached()
    assert (shown["status"], shown["templateStatus"]) == ("running", "failed")
    assert said(alice, shown["id"]) == [shown["bootstrapError"]]
