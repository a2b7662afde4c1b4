"""What an operator does with accounts, service tokens and signing keys."""
import contextlib
import json
import os
import re
import subprocess
import sys

import httpx
import psycopg2
import pytest

from bin.stack.site import ROOT
from services.accounts import users
from tests.stack.operator import run_operator

NAMES = [
    "SVC_API_KEY", "SVC_ALICE_EMAIL", "SVC_ALICE_PASSWORD", "SVC_BOB_EMAIL", "SVC_BOB_PASSWORD",
    "SVC_MALLORY_EMAIL", "SVC_MALLORY_PASSWORD", "SVC_SERVICE_TOKEN"
]


@pytest.fixture
def environ(edge):
    """The environment of a command on the same database and keys."""
    settings = edge.settings
    return {
        "SVC_DATABASE_URL": settings.database_url,
        "SVC_SIGNING_KEYS_DIR": str(settings.signing_keys_dir),
        "SVC_AUTH_URL": settings.auth_url,
        "SVC_REDIS_URL": settings.redis_url,
    }


@pytest.fixture
def command(environ):
    """Runs a command of the operator."""

    def run(*arguments, ok=True):
        code, printed, complaint = run_operator(environ, *arguments)
        assert (code == 0) is ok, printed + complaint
        return printed if ok else complaint

    return run


def lines(text):
    return dict(line.split("=", 1) for line in text.splitlines())


def status(edge, headers):
    return edge.api.get("/v1/sandboxes", headers=headers).status_code


@pytest.mark.slow
def test_seeding_gives_credentials_that_work(edge, environ):
    people = lines(subprocess.run([sys.executable, "-m", "app.operator", "seed-dev"], cwd=ROOT,
                                  env=os.environ | environ, capture_output=True, text=True,
                                  timeout=60, check=True).stdout)
    assert list(people) == NAMES
    assert status(edge, {"Authorization": f"Bearer {people['SVC_API_KEY']}"}) == 200
    behalf = {"X-On-Behalf-Of": edge.user("bob").id}
    assert status(edge, {"Authorization": f"Bearer {people['SVC_SERVICE_TOKEN']}"} | behalf) == 200
    for name, plan in (("ALICE", "legacy_pro"), ("BOB", "free"), ("MALLORY", "legacy_pro")):
        body = {"email": people[f"SVC_{name}_EMAIL"], "password": people[f"SVC_{name}_PASSWORD"]}
        assert edge.identity.post("/login", json=body).json["plan"] == plan


@pytest.mark.slow
def test_seeding_again_keeps_what_works_and_replaces_the_rest(edge, command, tmp_path):
    people = lines(command("seed-dev"))
    remembered = tmp_path / "dev.env"
    remembered.write_text(
        "# a comment\n" + "\n".join(f"{name}={value}" for name, value in people.items())
    )
    again = ("seed-dev", "--existing", str(remembered))
    assert lines(command(*again)) == people
    remembered.write_text(remembered.read_text().replace(people["SVC_API_KEY"], "svc_sk_revoked"))
    changed = lines(command(*again))
    assert (
        changed["SVC_API_KEY"] != people["SVC_API_KEY"]
        and changed["SVC_BOB_PASSWORD"] == people["SVC_BOB_PASSWORD"]
    )
    assert (
        lines(command("seed-dev", "--existing", str(tmp_path / "none"))).keys()
        == people.keys()
    )


def test_the_seeded_key_leaves_the_hours_allowance(edge, command):
    headers = edge.jwt(edge.user("alice"))
    codes = [
        edge.api.post("/v1/api-keys", json={"name": "x"}, headers=headers).status_code
        for _ in range(6)
    ]
    assert codes == [201] * 5 + [429]


def test_accounts(edge, command):
    made = command("user-create", "New.Person@example.test", "--plan", "personal")
    password = made.split("password ")[1].strip()
    body = {"email": "new.person@example.test", "password": password}
    assert edge.identity.post("/login", json=body).json["plan"] == "personal"
    command("user-plan", "new.person@example.test", "pro")
    assert edge.identity.post("/login", json=body).json["plan"] == "pro"
    changed = command("user-password",
                      "new.person@example.test").split("password ")[1].strip()
    assert edge.identity.post("/login", json=body).status_code == 401
    assert edge.identity.post("/login", json=body | {"password": changed}).status_code == 200


@pytest.mark.slow
def test_the_lines_for_a_first_account_lead_to_a_key_that_makes_a_sandbox(sim_stack, shell_blocks,
                                                                          tmp_path):
    """As docs/operations.md has them."""
    (block,) = shell_blocks("The first account")
    create, rest = block.replace("bin/svc-admin", f"{ROOT}/bin/svc-admin").split("\n", 1)
    password = sim_stack.run(create).split("password ")[1].strip()
    rest = rest.replace('"..."', json.dumps(password)).replace("NAME", "first")
    told = sim_stack.run(f"set -e; cd {tmp_path}\n{rest}")
    key, plan = (re.search(pattern, told)[1]
                 for pattern in (r'"key":\s*"(svc_sk_[\w-]+)"', r'"plan":\s*"(\w+)"'))
    assert plan == "personal" and "\ntoken " in told and not list(tmp_path.iterdir())
    made = httpx.post(f"{sim_stack.api_url}/v1/sandboxes", json={}, trust_env=False,
                      headers={"Authorization": f"Bearer {key}"})
    assert made.status_code == 201
    httpx.delete(f"{sim_stack.api_url}/v1/sandboxes/{made.json()['id']}", trust_env=False,
                 headers={"Authorization": f"Bearer {key}"}).raise_for_status()


def test_service_tokens(edge, command):
    minted = dict(
        line.split(" ", 1)
        for line in command("service-token-mint", "deployer").splitlines())
    headers = {
        "Authorization": f"Bearer {minted['token']}", "X-On-Behalf-Of": edge.user("alice").id
    }
    assert status(edge, headers) == 200
    command("service-token-revoke", minted["jti"])
    assert status(edge, headers) == 401
    assert minted["jti"] in edge.identity.get("/tokens/revoked").json["jtis"]


def test_a_service_token_of_a_user_is_minted_and_revoked(edge, command):
    owner = edge.newcomer()
    minted = dict(
        line.split(" ", 1) for line in command("service-token-mint", owner.email, "--user",
                                               "--app-id", "app-7").splitlines())
    headers = {"Authorization": f"Bearer {minted['token']}"}
    assert status(edge, headers) == 200
    assert status(edge, headers | {"X-On-Behalf-Of": owner.id}) == 200
    assert status(edge, headers | {"X-On-Behalf-Of": edge.user("bob").id}) == 403
    key = edge.api.post("/v1/api-keys", json={"name": "made by it"}, headers=headers)
    assert key.status_code == 201, "as with the user's own token"
    command("service-token-revoke", minted["jti"])
    assert status(edge, headers) == 401


def revoke(edge, headers, body):
    return edge.identity.post("/admin/service-token/revoke", json=body, headers=headers)


def test_an_administrator_revokes_service_tokens_over_http(edge, command):
    admin, target = (
        dict(
            line.split(" ", 1)
            for line in command("service-token-mint", name).splitlines()
        )
        for name in ("admin", "target")
    )
    headers = {"Authorization": f"Bearer {admin['token']}"}
    for body in ({}, {"jti": 5}, {"jti": ""}, {"jti": "x" * 129}, {"jti": "a\0b"}, {
            "jti": "x", "more": 1
    }, []):
        assert revoke(edge, headers, body).status_code == 400
    assert revoke(edge, headers, {"jti": "unknown"}).status_code == 404
    first = revoke(edge, headers, {"jti": target["jti"]})
    assert first.status_code == 200
    record = first.json["serviceToken"]
    assert record.keys() == {"jti", "subject", "appId", "issuedAt", "expiresAt", "revokedAt"}
    assert (record["jti"], record["subject"]) == (target["jti"],
                                                  "svc:target") and record["revokedAt"]
    assert revoke(edge, headers, {"jti": target["jti"]}).json == first.json
    assert revoke(edge, {"Authorization": f"Bearer {target['token']}"},
                  {"jti": admin["jti"]}).status_code == 401
    assert target["jti"] in edge.identity.get("/tokens/revoked").json["jtis"]
    assert revoke(
        edge, headers,
        {"jti": admin["jti"]}).status_code == 200, "an administrator may end its own token"
    assert revoke(edge, headers, {"jti": admin["jti"]}).status_code == 401


def test_an_administrators_token_is_not_a_users(edge, command):
    minted = command("service-token-mint", "admin").split("token ")[1].strip()
    headers = {"Authorization": f"Bearer {minted}", "X-On-Behalf-Of": edge.user("alice").id}
    assert status(edge, headers) == 403


def test_service_tokens_are_listed_without_their_secret(edge, command):
    minted = dict(line.split(" ", 1) for line in command(
        "service-token-mint", "listed", "--app-id", "app-7").splitlines())
    listed = command("service-token-list")
    line = next(line for line in listed.splitlines() if minted["jti"] in line)
    assert line.split()[1:3] == ["svc:listed", "app-7"] and line.endswith(" valid")
    assert edge.keys.get_signing().kid in line and minted["token"] not in listed
    shown = command("service-token-list", "--json")
    (row,) = [row for row in json.loads(shown) if row["jti"] == minted["jti"]]
    assert (row["subject"], row["app_id"], row["state"]) == ("svc:listed", "app-7", "valid")
    assert row["kid"] == edge.keys.get_signing().kid and minted["token"] not in shown
    command("service-token-revoke", minted["jti"])
    assert minted["jti"] not in command("service-token-list")
    assert any(minted["jti"] in line and line.endswith(" revoked")
               for line in command("service-token-list", "--all").splitlines())


def test_an_account_is_shut_out_and_let_in_again(edge, command):
    password = command("user-create",
                       "shut@example.test").split("password ")[1].strip()
    body, key = {"email": "shut@example.test", "password": password}, edge.key(
        users.get_by_email("shut@example.test"))
    browser = edge.identity.application.test_client()
    assert browser.post("/login", json=body).status_code == 200
    assert " shut@example.test free active" in command("user-list")
    command("user-disable", "shut@example.test")
    assert " shut@example.test free disabled" in command("user-list")
    assert browser.post("/token", json={"appId": "x"}).status_code == 401
    assert browser.post("/login", json=body).status_code == 401 and status(edge, key) == 401
    command("user-enable", "shut@example.test")
    assert browser.post("/token", json={"appId": "x"}).status_code == 401, "its sessions ended"
    assert browser.post("/login", json=body).status_code == 200 and status(edge, key) == 200
    assert command("user-sign-out", "shut@example.test").strip() == "ended 1"
    assert browser.post("/token", json={"appId": "x"}).status_code == 401


@pytest.mark.parametrize(
    "arguments",
    [
        ("service-token-mint", "With Spaces"), ("service-token-mint", ""),
        ("user-disable", "nobody@example.test"), ("user-create", "not an address"),
        ("user-create", "short@example.test", "--password", "short"),
        ("user-create", "empty@example.test", "--password", ""),
        ("user-plan", "nobody@example.test", "pro"), ("user-plan", "alice@example.test", "golden"),
        ("service-token-revoke", "unknown"), ("user-create", "alice@example.test"),
    ],
)
def test_a_mistake_is_one_sentence(command, arguments):
    assert "Error: " in command(*arguments, ok=False)


def test_no_token_is_minted_where_no_signing_key_is(environ, tmp_path):
    elsewhere = {**environ, "SVC_SIGNING_KEYS_DIR": str(tmp_path)}
    code, printed, complaint = run_operator(elsewhere, "service-token-mint", "deployer")
    assert (code, printed) == (1, "") and "The host of `identity` has them" in complaint
    assert not list(tmp_path.iterdir())


def test_a_database_of_another_version_is_one_sentence(environ, databases):
    url = databases.create()
    with contextlib.closing(psycopg2.connect(url)) as rows, rows, rows.cursor() as cursor:
        cursor.execute("DROP TABLE nodes CASCADE")
    code, printed, complaint = run_operator({**environ, "SVC_DATABASE_URL": url}, "node-list")
    assert code == 1 and printed == "" and complaint.startswith("Error: The database does not have")
    assert "python -m models.migrate" in complaint and complaint.count("\n") == 1


def test_the_signing_key_is_made_once_and_only_its_owner_reads_it(edge, command):
    directory = edge.settings.signing_keys_dir
    first = command("keys", "ensure").strip()
    assert command("keys", "ensure").strip() == first
    listed = {row["kid"]: row for row in json.loads(command("keys", "list", "--json"))}
    assert listed[first]["stage"] == "signing" and listed[first]["needed_because"]
    assert (directory / f"{first}.private.pem").stat().st_mode & 0o077 == 0
