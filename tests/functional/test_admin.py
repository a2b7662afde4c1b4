"""The operator's commands, as an operator runs them."""
import os
import subprocess
import sys

import pytest

from bin.site import ROOT

NAMES = ["SVC_API_KEY", "SVC_ALICE_EMAIL", "SVC_ALICE_PASSWORD", "SVC_BOB_EMAIL", "SVC_BOB_PASSWORD",
         "SVC_MALLORY_EMAIL", "SVC_MALLORY_PASSWORD", "SVC_SERVICE_TOKEN"]


@pytest.fixture
def command(edge):
    """Runs a module as a process on the same database and keys."""
    settings = edge.settings
    environ = os.environ | {
        "SVC_DATABASE_URL": settings.database_url, "SVC_SIGNING_KEYS_DIR": str(settings.signing_keys_dir),
        "SVC_AUTH_URL": settings.auth_url, "SVC_REDIS_URL": settings.redis_url}

    def run(*arguments, ok=True):
        result = subprocess.run([sys.executable, "-m", *arguments], cwd=ROOT, env=environ, capture_output=True,
                                text=True, timeout=60, check=False)
        assert (result.returncode == 0) is ok, result.stdout + result.stderr
        assert "Traceback" not in result.stderr
        return result.stdout if ok else result.stderr

    return run


def lines(text):
    return dict(line.split("=", 1) for line in text.splitlines())


def status(edge, headers):
    return edge.api.get("/v1/sandboxes", headers=headers).status_code


def test_seeding_gives_credentials_that_work(edge, command):
    people = lines(command("app.admin", "seed-dev"))
    assert list(people) == NAMES
    assert status(edge, {"Authorization": f"Bearer {people['SVC_API_KEY']}"}) == 200
    behalf = {"X-On-Behalf-Of": edge.user("bob").id}
    assert status(edge, {"Authorization": f"Bearer {people['SVC_SERVICE_TOKEN']}"} | behalf) == 200
    for name, plan in (("ALICE", "legacy_pro"), ("BOB", "free"), ("MALLORY", "legacy_pro")):
        body = {"email": people[f"SVC_{name}_EMAIL"], "password": people[f"SVC_{name}_PASSWORD"]}
        assert edge.identity.post("/login", json=body).json["plan"] == plan


def test_seeding_again_keeps_what_works_and_replaces_the_rest(edge, command, tmp_path):
    people = lines(command("app.admin", "seed-dev"))
    remembered = tmp_path / "dev.env"
    remembered.write_text("# a comment\n" + "\n".join(f"{name}={value}" for name, value in people.items()))
    again = ("app.admin", "seed-dev", "--existing", str(remembered))
    assert lines(command(*again)) == people
    remembered.write_text(remembered.read_text().replace(people["SVC_API_KEY"], "svc_sk_revoked"))
    changed = lines(command(*again))
    assert changed["SVC_API_KEY"] != people["SVC_API_KEY"] and changed["SVC_BOB_PASSWORD"] == people["SVC_BOB_PASSWORD"]
    assert lines(command("app.admin", "seed-dev", "--existing", str(tmp_path / "none"))).keys() == people.keys()


def test_the_seeded_key_leaves_the_hours_allowance(edge, command):
    headers = edge.jwt(edge.user("alice"))
    codes = [edge.api.post("/v1/api-keys", json={"name": "x"}, headers=headers).status_code for _ in range(6)]
    assert codes == [201] * 5 + [429]


def test_accounts(edge, command):
    made = command("app.admin", "user-create", "New.Person@example.test", "--plan", "personal")
    password = made.split("password ")[1].strip()
    body = {"email": "new.person@example.test", "password": password}
    assert edge.identity.post("/login", json=body).json["plan"] == "personal"
    command("app.admin", "user-plan", "new.person@example.test", "pro")
    assert edge.identity.post("/login", json=body).json["plan"] == "pro"
    changed = command("app.admin", "user-password", "new.person@example.test").split("password ")[1].strip()
    assert edge.identity.post("/login", json=body).status_code == 401
    assert edge.identity.post("/login", json=body | {"password": changed}).status_code == 200


def test_service_tokens(edge, command):
    minted = dict(line.split(" ", 1) for line in command("app.admin", "service-token-mint", "deployer").splitlines())
    headers = {"Authorization": f"Bearer {minted['token']}", "X-On-Behalf-Of": edge.user("alice").id}
    assert status(edge, headers) == 200
    command("app.admin", "service-token-revoke", minted["jti"])
    assert status(edge, headers) == 401
    assert minted["jti"] in edge.identity.get("/tokens/revoked").json["jtis"]


@pytest.mark.parametrize("arguments", [
    ("user-create", "not an address"), ("user-create", "short@example.test", "--password", "short"),
    ("user-plan", "nobody@example.test", "pro"), ("user-plan", "alice@example.test", "golden"),
    ("service-token-revoke", "unknown"), ("user-create", "alice@example.test"),
])
def test_a_mistake_is_one_sentence(command, arguments):
    assert "Error: " in command("app.admin", *arguments, ok=False)


def test_the_signing_key_is_made_once_and_only_its_owner_reads_it(edge, command):
    directory = edge.settings.signing_keys_dir
    first = command("app.identity.keys", "ensure").strip()
    assert command("app.identity.keys", "ensure").strip() == first
    assert (directory / f"{first}.private.pem").stat().st_mode & 0o077 == 0
