"""GET /v1/sandboxes and GET /v1/sandboxes/{id}: envelope, entries, paging, whose they are."""
import pytest

from models.database import connection, now
from models.sandboxes import Sandbox
from nodeworker.hypervisor.host_facts import UsageReading
from services.metering import counting
from services.metering.counting import Sample
from services.sandboxes import find, listing

SANDBOXES = "/v1/sandboxes"
ENTRY = {
    "id", "slug", "project", "projectId", "appId", "kind", "status", "region", "vcpus", "memMb",
    "createdAt", "lastActiveAt", "usageSeconds", "usageCost", "computeCost", "sshEnabled",
    "sshHost", "sshUser", "sshCommand", "sshKeysConfigured"
}
ENVELOPE = {
    "sandboxes", "totalUsageSeconds", "totalComputeCost", "computeCostBilled", "totalLlmCost",
    "total", "limit", "offset"
}


@pytest.fixture
def headers(edge):
    return edge.key(edge.newcomer())


def make(edge, headers, count):
    return [edge.api.post(SANDBOXES, json={}, headers=headers).json["id"] for _ in range(count)]


def page(edge, headers, query=""):
    answer = edge.api.get(f"{SANDBOXES}{query}", headers=headers)
    assert answer.status_code == 200
    return answer.json


def stop(*ids):
    with connection():
        Sandbox.update(status="stopped", task=None, stopped_at=now()).where(
            Sandbox.id.in_(ids)).execute()


def test_an_empty_list(edge, headers):
    assert page(edge, headers) == {
        "sandboxes": [], "totalUsageSeconds": 0, "totalComputeCost": 0, "computeCostBilled": False,
        "totalLlmCost": None, "total": 0, "limit": 100, "offset": 0}


def test_the_contracts_shape(edge, headers):
    made = make(edge, headers, 1)
    listed = page(edge, headers)
    assert listed.keys() == ENVELOPE
    entry = listed["sandboxes"][0]
    assert entry.keys() == ENTRY
    assert entry["id"] == made[0] and entry["kind"] == "api" and entry["status"] == "provisioning"
    assert (entry["region"], entry["vcpus"], entry["memMb"]) == ("n1", 1, 1024)
    assert entry["createdAt"].endswith("Z") and entry["lastActiveAt"].endswith("Z")
    assert entry["sshEnabled"] is entry["sshKeysConfigured"] is False and entry["sshHost"] is None


def test_newest_first_and_stable_pages(edge, headers):
    made = make(edge, headers, 7)
    assert [entry["id"] for entry in page(edge, headers)["sandboxes"]] == made[::-1]
    paged = []
    for offset in (0, 3, 6, 9):
        part = page(edge, headers, f"?limit=3&offset={offset}")
        assert (part["total"], part["limit"], part["offset"]) == (7, 3, offset)
        paged += [entry["id"] for entry in part["sandboxes"]]
    assert paged == made[::-1]


def test_equal_times_do_not_shuffle_pages(edge, headers):
    made = make(edge, headers, 6)
    with connection():
        Sandbox.update(created_at=now()).where(Sandbox.id.in_(made)).execute()
    paged = [
        page(edge, headers, f"?limit=1&offset={offset}")["sandboxes"][0]["id"]
        for offset in range(6)
    ]
    assert sorted(paged) == sorted(made)


def test_a_large_limit_is_capped_not_refused(edge, headers):
    for more in (501, 2**31 - 1, 2**53 - 1, 10**39):
        assert page(edge, headers, f"?limit={more}")["limit"] == 500
    assert page(edge, headers, "?limit=500")["limit"] == 500


def test_stopped_ones_are_left_out_unless_asked_for(edge, headers):
    kept, gone = make(edge, headers, 2)
    stop(gone)
    assert [entry["id"] for entry in page(edge, headers)["sandboxes"]] == [kept]
    assert [entry["id"] for entry in page(edge, headers, "?status=stopped")["sandboxes"]] == [gone]
    assert page(edge, headers, "?status=hibernated")["total"] == 0


def test_status_and_kind_can_be_combined_and_are_checked(edge, headers):
    asleep, awake, other = make(edge, headers, 3)
    with connection():
        Sandbox.update(status="hibernated").where(Sandbox.id == asleep).execute()
        Sandbox.update(status="hibernated", kind="app").where(Sandbox.id == other).execute()
    for query, wanted in (
        ("", [other, awake, asleep]), ("?kind=api", [awake, asleep]),
        ("?status=hibernated", [other, asleep]), ("?kind=api&status=hibernated", [asleep]),
        ("?kind=app", [other]),
    ):
        listed = page(edge, headers, query)
        assert ([entry["id"]
                 for entry in listed["sandboxes"]], listed["total"]) == (wanted, len(wanted)), query
    for query, name in (("?kind=none", "kind"), ("?status=asleep", "status"), ("?kind=", "kind"),
                        ("?limit=-1", "limit"), ("?offset=x", "offset")):
        answer = edge.api.get(f"{SANDBOXES}{query}", headers=headers)
        assert answer.status_code == 400 and name in answer.json["error"], query


def test_totals_are_of_all_sandboxes_and_not_of_the_page(edge, headers):
    made = make(edge, headers, 3)
    with connection():
        owner_id = Sandbox.get_by_id(made[0]).owner_id
        for box in made:
            reading = Sample(box, owner_id, 66_000, None, UsageReading(box, 10, 1000))
            counting.record_end_of_operation(reading, running=False)
            grown = Sample(box, owner_id, 66_000, box, UsageReading(box, 20, 3_601_000))
            counting.record([grown])
    stop(made[0])
    for query in ("", "?limit=1", "?offset=50", "?status=stopped"):
        listed = page(edge, headers, query)
        assert (listed["totalUsageSeconds"], listed["totalComputeCost"]) == (
            3 * 3600, 3 * 0.066,
        ), query
        for entry in listed["sandboxes"]:
            assert (entry["usageSeconds"], entry["computeCost"],
                    entry["usageCost"]) == (3600, 0.066, None)


def test_everybody_sees_their_own(edge, headers):
    make(edge, headers, 2)
    assert page(edge, edge.key(edge.newcomer()))["total"] == 0


def test_get_shows_a_stopped_one_and_why_its_boot_failed(edge, headers):
    made, failed = make(edge, headers, 2)
    stop(made, failed)
    with connection():
        Sandbox.update(error="The sandbox could not be started.").where(
            Sandbox.id == failed).execute()
    answer = edge.api.get(f"{SANDBOXES}/{made}", headers=headers)
    assert (
        answer.status_code == 200
        and answer.json["status"] == "stopped"
        and "error" not in answer.json
    )
    assert edge.api.get(f"{SANDBOXES}/{failed}",
                        headers=headers).json["error"] == "The sandbox could not be started."


def test_unknown_is_404_and_anothers_403(edge, headers):
    made = make(edge, headers, 1)[0]
    stranger = edge.key(edge.newcomer())
    assert edge.api.get(f"{SANDBOXES}/unknown", headers=headers).status_code == 404
    assert edge.api.get(f"{SANDBOXES}/{made}", headers=stranger).status_code == 403
    for method, tail in (("DELETE", ""), ("POST", "/hibernate"), ("POST", "/wake"),
                         ("POST", "/extend"), ("POST", "/snapshot"), ("POST", "/fork"),
                         ("GET", "/files?path=/etc/passwd")):
        assert edge.api.open(f"{SANDBOXES}/{made}{tail}", method=method,
                             headers=stranger).status_code == 403, tail
    exec_answer = edge.api.post(f"{SANDBOXES}/{made}/exec", json={"cmd": "id"}, headers=stranger)
    files_answer = edge.api.post(f"{SANDBOXES}/{made}/files", json=[], headers=stranger)
    assert (exec_answer.status_code, files_answer.status_code) == (403, 403)
    assert edge.api.get(f"{SANDBOXES}/{made}", headers=headers).json["status"] == "provisioning"


@pytest.mark.parametrize(("query", "named"), [
    ("statsu=stopped", "statsu: Unknown field."),
    ("status=stopped&status=running", "status: is given more than once"),
    ("limit=1&limit=1", "limit: is given more than once"),
    ("%00=1", "NUL"),
    ("LIMIT=2", "LIMIT: Unknown field."),
])
def test_a_misspelt_or_repeated_filter_is_named_and_not_overlooked(edge, query, named):
    answer = edge.api.get(f"/v1/sandboxes?{query}", headers=edge.key(edge.newcomer()))
    assert answer.status_code == 400 and named in answer.json["error"]


def test_a_route_without_a_query_does_nothing_if_it_is_given_one(edge, headers):
    made = edge.api.post(SANDBOXES, json={}, headers=headers).json["id"]
    for method, path, name in (("POST", SANDBOXES, "idempotencyKey"),
                               ("DELETE", f"{SANDBOXES}/{made}", "dryRun")):
        answer = edge.api.open(f"{path}?{name}=x", method=method, headers=headers)
        assert (answer.status_code, answer.json) == (400, {"error": f"{name}: Unknown field."})
    (kept,) = edge.api.get(SANDBOXES, headers=headers).json["sandboxes"]
    assert kept["id"] == made and kept["status"] != "stopped"


def test_what_may_be_much_is_not_read_for_an_answer_that_does_not_show_it(edge, headers):
    ports = list(range(3000, 3064))
    made = edge.api.post(SANDBOXES, json={"ports": ports}, headers=headers).json["id"]
    shown = edge.api.get(f"{SANDBOXES}/{made}", headers=headers).json
    assert sorted(shown["portMap"].values()) == ports
    with connection():
        read = find.VIEW.find(made)
    assert len(read.port_map) == len(ports) and not {"env", "agent_token"} & set(read.__data__)
    listed, _ = listing.page_query("owner", 500, 0, None, None).sql()
    assert '"env"' not in listed and '"start_command"' not in listed
