"""Resources and their fields: every response has the contract's names, all of them and with the
contract's types."""
import ipaddress
import re
from datetime import datetime, timezone

NUMBER, TEXT_OR_NULL, NUMBER_OR_NULL = (int, float), (str, type(None)), (int, float, type(None))
SANDBOX = {
    "id": str, "status": str, "cwd": str, "vmIP": str, "portMap": dict, "createdAt": str,
    "preferredModel": str, "nodeId": str
}
ENTRY = {
    "id": str,
    "slug": TEXT_OR_NULL,
    "project": TEXT_OR_NULL,
    "projectId": TEXT_OR_NULL,
    "appId": TEXT_OR_NULL,
    "kind": str,
    "status": str,
    "region": str,
    "vcpus": NUMBER,
    "memMb": NUMBER,
    "createdAt": str,
    "lastActiveAt": str,
    "usageSeconds": NUMBER,
    "usageCost": NUMBER_OR_NULL,
    "computeCost": NUMBER,
    "sshEnabled": bool,
    "sshHost": TEXT_OR_NULL,
    "sshUser": TEXT_OR_NULL,
    "sshCommand": TEXT_OR_NULL,
    "sshKeysConfigured": bool,
}
ENVELOPE = {
    "sandboxes": list, "totalUsageSeconds": NUMBER, "totalComputeCost": NUMBER,
    "computeCostBilled": bool, "totalLlmCost": NUMBER_OR_NULL, "total": NUMBER, "limit": NUMBER,
    "offset": NUMBER
}
SNAPSHOT = {
    "id": str, "nodeId": str, "kind": str, "rootfsSha": str, "sizeBytes": NUMBER,
    "tarballSizeBytes": NUMBER, "sourceSandboxId": str, "uploadedToStore": bool, "createdAt": str
}
API_KEY = {
    "id": str, "name": str, "prefix": str, "scopes": list, "createdAt": str,
    "lastUsedAt": TEXT_OR_NULL, "revokedAt": TEXT_OR_NULL, "expiresAt": TEXT_OR_NULL
}
RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
STATUSES = {"provisioning", "running", "hibernated", "stopped"}


def check(body, shape):
    """`body` has exactly the names of `shape`, each of its type; JSON's true and false are no
    numbers."""
    assert body.keys() == shape.keys()
    for name, kind in shape.items():
        assert isinstance(body[name], kind), f"{name}: {body[name]!r}"
        assert kind is bool or not isinstance(body[name], bool), f"{name}: {body[name]!r}"
        if name.endswith("At") and body[name] is not None:
            assert RFC3339.fullmatch(body[name]), f"{name}: {body[name]!r}"
    return body


def check_sandbox(answer, status, code=200):
    assert answer.status_code == code, answer.text
    assert answer.headers["Content-Type"] == "application/json"
    body = check(answer.json(), SANDBOX)
    assert body["status"] == status and status in STATUSES
    assert all(
        re.fullmatch(r"\d{1,5}", host) and type(guest) is int
        for host, guest in body["portMap"].items())
    return body


def test_a_sandbox_in_every_answer_that_shows_one(alice):
    started = check_sandbox(
        alice.post("/v1/sandboxes", json={"ports": [3000], "preferredModel": "m"}), "provisioning",
        201)
    path = f"/v1/sandboxes/{started['id']}"
    alice.wait_for(started["id"], "running")
    running = check_sandbox(alice.get(path), "running")
    fork = check_sandbox(alice.post(f"{path}/fork"), "provisioning", 201)
    snapshot = alice.post(f"{path}/snapshot").json()["id"]
    second = check_sandbox(alice.post("/v1/sandboxes/fork", json={"snapshotId": snapshot}),
                           "provisioning", 201)
    check_sandbox(alice.post(f"{path}/extend"), "running")
    for sleep, resume in (("hibernate", "wake"), ("pause", "resume")):
        asleep = check_sandbox(alice.post(f"{path}/{sleep}"), "hibernated")
        check_sandbox(alice.post(f"{path}/{resume}"), "running")
        for name in ("id", "cwd", "portMap", "createdAt", "preferredModel", "nodeId"):
            assert asleep[name] == running[name] == started[name], name
    for made in (started, fork, second):
        check_sandbox(alice.delete(f"/v1/sandboxes/{made['id']}"), "stopped")
    check_sandbox(alice.get(path), "stopped")


def test_the_fields_of_a_running_sandbox(alice, sandbox):
    body = alice.get(f"/v1/sandboxes/{sandbox['id']}").json()
    assert re.fullmatch(r"[a-z0-9-]{6,20}", body["id"]), "short, and fit for a host name"
    assert body["cwd"] == "/home/user"
    assert ipaddress.ip_address(body["vmIP"])
    assert list(body["portMap"].values()) == [3000]
    assert body["nodeId"] == alice.stack.settings.node_id
    age = datetime.now(timezone.utc) - datetime.fromisoformat(
        body["createdAt"].replace("Z", "+00:00")
    )
    assert abs(age.total_seconds()) < 3600, "UTC, and of today"


def test_a_list_entry_and_its_envelope(alice, sandbox):
    envelope = check(alice.get("/v1/sandboxes?limit=500").json(), ENVELOPE)
    entries = {entry["id"]: check(entry, ENTRY) for entry in envelope["sandboxes"]}
    entry = entries[sandbox["id"]]
    assert (entry["kind"], entry["status"], entry["region"]) == ("api", "running",
                                                                 sandbox["nodeId"])
    assert (entry["vcpus"], entry["memMb"], entry["createdAt"]) == (1, 1024, sandbox["createdAt"])
    assert entry["project"] is entry["projectId"] is entry["appId"] is entry["slug"] is None
    assert envelope["computeCostBilled"] is False
    assert (envelope["total"], envelope["limit"], envelope["offset"]) == (len(entries), 500, 0)


def test_a_snapshot(alice, sandbox):
    answer = alice.post(f"/v1/sandboxes/{sandbox['id']}/snapshot")
    assert answer.status_code == 201
    body = check(answer.json(), SNAPSHOT)
    assert (body["kind"], body["nodeId"]) == ("user_project", sandbox["nodeId"])
    assert body["sourceSandboxId"] == sandbox["id"]
    assert re.fullmatch(r"([0-9a-f]{64})?", body["rootfsSha"]) and body["sizeBytes"] > 0


def test_an_api_key_record(edge):
    owner = edge.newcomer()
    headers = edge.jwt(owner)
    made = edge.api.post("/v1/api-keys", json={"name": "n", "expiresAt": "2099-01-01T00:00:00Z"},
                         headers=headers)
    assert made.json.keys() == {"key", "apiKey"}
    record = check(made.json["apiKey"], API_KEY)
    assert record["scopes"] == ["sandbox"] and record["prefix"] == made.json["key"][:12]
    edge.api.get("/v1/sandboxes", headers={"Authorization": f"Bearer {made.json['key']}"})
    revoked = edge.api.delete(f"/v1/api-keys/{record['id']}", headers=headers).json
    assert revoked.keys() == {"apiKey"}
    listed = edge.api.get("/v1/api-keys", headers=headers).json
    assert listed == {"apiKeys": [check(revoked["apiKey"], API_KEY)]}
    assert all(
        isinstance(listed["apiKeys"][0][name], str)
        for name in ("lastUsedAt", "revokedAt", "expiresAt"))


def test_an_exec_result_and_a_file(alice, sandbox):
    path = f"/v1/sandboxes/{sandbox['id']}"
    check(alice.post(f"{path}/exec", json={"cmd": "false", "args": []}).json(),
          {"stdout": str, "stderr": str, "exitCode": int})
    written = alice.post(f"{path}/files", json=[{"path": "/data/x", "content": "eA==",
                                                 "mode": 420}])
    assert written.status_code == 204 and written.content == b""
    assert check(alice.get(f"{path}/files?path=/data/x").json(),
                 {"content": str}) == {"content": "eA=="}


def test_errors_are_one_text(alice, sandbox):
    for answer in (alice.get("/v1/sandboxes/unknown"), alice.get("/v1/nothing"),
                   alice.get("/v1/sandboxes?limit=x"),
                   alice.post(f"/v1/sandboxes/{sandbox['id']}/exec",
                              json={}), alice.get("/v1/sandboxes", headers={}),
                   alice.get("/v1/api-keys"), alice.request("PUT", "/v1/sandboxes")):
        assert answer.status_code >= 400
        assert answer.headers["Content-Type"] == "application/json"
        assert check(answer.json(), {"error": str})["error"]


def test_no_answer_holds_a_secret_of_the_sandbox(alice):
    made = alice.create(env={"TOKEN": "hunter2"}, idempotencyKey="a secret of mine")
    path = f"/v1/sandboxes/{made['id']}"
    for shown in (alice.get(path), alice.get("/v1/sandboxes"), alice.post(f"{path}/extend"),
                  alice.delete(path)):
        assert made["id"] in shown.text
        assert "hunter2" not in shown.text and "a secret of mine" not in shown.text
        assert "token" not in shown.text.lower()
