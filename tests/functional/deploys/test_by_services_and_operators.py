"""Apps as a service and an operator handle them, on a whole stack: listed, rolled back, explained,
their variables set."""
import json

import pytest

from models.database import connect, connection, database, now
from models.deploys import Deploy, DeployPrefix, DeployRun
from services.protocols import Deps
from tasks.wiring import no_guest
from tests.clients.deploys import Deploys
from tests.clients.projects import served_by, snapshot
from tests.fakes.outside import ListQueue
from tests.functional.operator.test_secrets_stay_secret import everything
from tests.rows.static_apps import publish
from tests.stack.database import query
from tests.stack.operator import run_operator
from tests.stack.previews import Served
from tests.stack.waiting import until
from tests.tls.clients import client

SECRET = "hunter2-of-the-app"
# Comes back byte for byte.
INTENT = " intent\t1 é "


@pytest.fixture(scope="module")
def deps(sim_stack):
    connect(sim_stack.settings.database_url, pool_size=5)
    yield Deps(sim_stack.settings, ListQueue(), no_guest)
    database.close_all()


@pytest.fixture
def svc_admin(sim_stack):
    """Runs a command of the operator's; returns what it printed, or complained of with `ok`
    False."""
    def run(*words, ok=True):
        code, printed, complaint = run_operator(sim_stack.env, *words)
        assert (code == 0) is ok, printed + complaint
        return printed if ok else complaint

    run.json = lambda *words: json.loads(run(*words, "--json"))
    return run


@pytest.fixture(scope="module")
def shop(sim_stack, deps, deploys):
    """An app of alice's with two versions."""
    for number in ("one", "two"):
        publish(deps, "rolled", {"index.html": number}, deploys.persona.email)
    yield "rolled"
    deploys.remove("rolled")


def test_back_and_forth_by_a_service_and_an_operator(sim_stack, deploys, shop, svc_admin):
    with client(sim_stack, f"{shop}.apps.localhost") as http:
        until(lambda: http.get("/").text == "two", 10)
        answer = deploys.request("POST", f"/{shop}/rollback", json={
            "runId": "back", "deployIntentId": "i"})
        assert answer.status_code == 200, answer.text
        back = answer.json()
        assert (back["servingVersion"], back["version"], back["restoresVersion"]) == (1, 3, 1)
        assert (back["runId"], back["deployIntentId"], back["status"]) == ("back", "i", "live")
        until(lambda: http.get("/").text == "one", 10)
        again = deploys.request("POST", f"/{shop}/rollback", json={"runId": "back"})
        assert again.status_code == 409 and "no earlier version" in again.json()["error"]
        assert svc_admin("deploy-rollback", shop, "--version", "2") == "version 2 is back\n"
        until(lambda: http.get("/").text == "two", 10)
    assert deploys.get(shop)["runId"] == "operator"
    assert "no app none" in svc_admin("deploy-rollback", "none", ok=False)


def test_an_operator_takes_the_app_of_a_shut_out_account_off_the_web(sim_stack, deps, svc_admin):
    email = "shut-out@example.test"
    svc_admin("user-create", email)
    claimed = publish(deps, "abuse", {"index.html": "bad"}, email)
    with client(sim_stack, "abuse.apps.localhost") as http:
        until(lambda: http.get("/").text == "bad", 10)
        svc_admin("user-disable", email)
        assert http.get("/").text == "bad"
        assert svc_admin("deploy-remove", "abuse") == "removed\n"
        assert http.get("/").status_code == 404
    assert svc_admin.json("deploy-list", email) == []
    with connection():
        kept = DeployPrefix.select().where((DeployPrefix.app_id == claimed.app_id)
                                           & DeployPrefix.due_at.is_null())
        assert not kept.exists(), "its files go"
    assert "no app abuse" in svc_admin("deploy-remove", "abuse", ok=False)


@pytest.fixture
def servers():
    made = {"red": Served(), "blue": Served()}
    yield made
    for server in made.values():
        server.close()


@pytest.mark.slow
def test_a_worker_brings_back_a_version_with_a_process_of_its_own(
        sim_stack, alice, deploys, servers):
    for name, server in servers.items():
        made = deploys.publish("bistro", snapshot(alice, served_by(
            server.port, build=f"echo {name}", database="kept.db")), deployIntentId=INTENT)
        assert (made["error"], made["static"], made["deployIntentId"]) == (None, False, INTENT)
    nonces = {name: server.server.nonce for name, server in servers.items()}
    with client(sim_stack, "bistro.apps.localhost") as http:
        until(lambda: http.get("/nonce").text == nonces["blue"], 10)
        answer = deploys.request("POST", "/bistro/rollback", timeout=120, json={
            "runId": "back", "deployIntentId": INTENT})
        assert answer.status_code == 200, answer.text
        back = answer.json()
        assert (back["servingVersion"], back["restoresVersion"], back["error"]) == (3, 1, None)
        assert (back["runId"], back["deployIntentId"]) == ("back", INTENT)
        until(lambda: http.get("/nonce").text == nonces["red"], 10)
    told = [(kind, json.loads(body)["data"]) for kind, body in query(
        sim_stack, "SELECT type, body FROM events WHERE subject = 'bistro'")]
    for run_id, number in {"run": 2, "back": 1}.items():
        assert told.count(("deploy.succeeded", {
            "slug": "bistro", "runId": run_id, "deployIntentId": INTENT})) == number
    assert len(told) == 3
    assert "\nred\n" in deploys.log("bistro"), "it was built again"
    deploys.remove("bistro")


def test_the_list_is_the_owners_in_pages(sim_stack, deps, deploys, shop, mallory):
    publish(deps, "newer", {"index.html": "x"}, deploys.persona.email)
    try:
        page = deploys.request("GET", "?limit=1").json()
        assert [app["slug"] for app in page["deploys"]] == ["newer"]
        assert page["limit"] == 1 and page["total"] >= 2
        rest = deploys.request("GET", "?offset=1").json()["deploys"]
        assert {"newer"} & {app["slug"] for app in rest} == set()
        (mine,) = [app for app in rest if app["slug"] == shop]
        assert mine == deploys.get(shop)
        theirs = Deploys(sim_stack, mallory).request("GET").json()
        assert shop not in str(theirs)
    finally:
        deploys.remove("newer")


def test_what_an_app_says_is_its_owners_unless_a_service_acts_for_nobody(
        sim_stack, deploys, shop, mallory):
    theirs, bearer = Deploys(sim_stack, mallory), deploys.headers["Authorization"]
    for path, status in {"": 200, "/log": 200, "/logs": 409}.items():
        assert deploys.request("GET", f"/{shop}{path}").status_code == status
        refused = theirs.request("GET", f"/{shop}{path}")
        assert refused.status_code == 403, refused.text
        plain = mallory.request("GET", f"/v1/deploys/{shop}{path}",
                                headers={"Authorization": bearer})
        assert plain.status_code == status, plain.text


def test_variables_come_and_go_and_a_secret_does_not_come_back(sim_stack, deploys, shop, mallory):
    answer = deploys.request("PUT", f"/{shop}/variables/TOKEN", json={"value": SECRET})
    assert answer.status_code == 200 and SECRET not in answer.text
    plain = {"value": "a\nb", "secret": False}
    deploys.request("PUT", f"/{shop}/variables/MODE", json=plain).raise_for_status()
    listed = deploys.request("GET", f"/{shop}/variables")
    assert SECRET not in listed.text
    assert [(each["name"], each["secret"], each.get("value"))
            for each in listed.json()["variables"]] == [
        ("MODE", False, "a\nb"), ("TOKEN", True, None)]
    refused = deploys.request("PUT", f"/{shop}/variables/PORT", json={"value": SECRET})
    assert refused.status_code == 400 and SECRET not in refused.text
    long = deploys.request("PUT", f"/{shop}/variables/LONG", json={"value": SECRET * 9999})
    assert long.status_code == 400 and SECRET not in long.text
    assert Deploys(sim_stack, mallory).request("GET", f"/{shop}/variables").status_code == 403
    gone = deploys.request("DELETE", f"/{shop}/variables/TOKEN")
    assert gone.status_code == 200 and SECRET not in gone.text
    assert deploys.request("DELETE", f"/{shop}/variables/TOKEN").status_code == 404
    assert [place for place, content in everything(sim_stack) if SECRET.encode() in content] == []


def test_a_static_app_writes_no_log(deploys, shop):
    answer = deploys.request("GET", f"/{shop}/logs?lines=5")
    assert answer.status_code == 409 and "no process of its own" in answer.json()["error"]
    assert deploys.request("GET", f"/{shop}/logs?lines=0").status_code == 400


def test_an_operator_sees_apps_their_deploys_and_what_they_occupy(
        deps, deploys, shop, svc_admin):
    apps = {row["slug"]: row for row in svc_admin.json("deploy-list", deploys.persona.email)}
    app = apps[shop]
    assert (app["status"], app["static"], app["run"]["state"]) == ("live", True, "succeeded")
    heading, *lines = svc_admin("deploy-list").splitlines()
    assert heading.split()[:4] == ["APP", "OWNER", "STATUS", "SERVES"]
    assert any(line.startswith(shop) and "files" in line for line in lines)
    (use,) = [use for use in svc_admin.json("deploy-disk-usage") if use["slug"] == shop]
    assert use["app_id"] == app["app_id"] and use["total_bytes"] == use["store_bytes"] > 6
    assert shop in svc_admin("deploy-disk-usage")
    told = svc_admin("explain", f"{shop}@1")
    assert f"App {shop} ({app['app_id']}) of {deploys.persona.email} is live." in told
    assert "The deploy of version 1, of snapshot none," in told and "has succeeded" in told
    assert svc_admin.json("explain", shop)["app"]["slug"] == shop
    assert "no deploy" in svc_admin("explain", f"{shop}@99", ok=False).lower()


def test_an_operator_is_told_what_a_deploy_waits_for(deps, deploys, shop, svc_admin):
    with connection():
        row = Deploy.get_by_id(shop)
        last = DeployRun.select().where(DeployRun.app_id == row.app_id).order_by(
            DeployRun.version).first()
        values = {**last.__data__, "id": None, "version": row.next_version, "state": "queued",
                  "step": "build", "finished_at": None, "error": None,
                  "operator_error": "Unavailable: there is no room", "announce_at": now()}
        del values["id"]
        run = DeployRun.create(**values)
    try:
        told = svc_admin("explain", shop)
        assert "is waiting for a worker" in told and "It says: Unavailable: there is no" in told
        assert "It is announced again once its node reports" in told
        assert "queue node.nowhere.deploy" in told and "no node nowhere" in told
        assert shop in svc_admin("deploy-list", "--open")
        assert shop not in svc_admin("deploy-list", "--failed")
        answer = deploys.request("POST", f"/{shop}/rollback", json={"runId": "r", "version": 1})
        assert answer.status_code == 409 and "under way" in answer.json()["error"]
    finally:
        with connection():
            DeployRun.delete().where(DeployRun.id == run.id).execute()
