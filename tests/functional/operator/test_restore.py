"""The way back to yesterday's dump, step by step as docs/operations.md has it ("Backup", "Restore")
and by the very lines that it has for one box."""
import pytest
import redis

from bin import restart
from bin.stack.running import Stack, private_stack
from bin.stack.site import Site
from tests.stack.database import query
from tests.stack.personas import Persona
from tests.stack.times import QUICK
from tests.stack.waiting import becomes, until

# What follows a kept request, not what visitors and apps come to.
PROCESSES = ("api", "identity", "control", "relay", "node-ctl", "node-ops", "node-bulk", "beat")


@pytest.fixture
def stack(clean_host):
    made = private_stack("test-restore", {"SVC_DRIVER": "simulated", **QUICK}, processes=PROCESSES)
    try:
        made.up()
        yield made
    finally:
        made.destroy()


@pytest.fixture
def alice(stack):
    persona = Persona(stack, "ALICE")
    yield persona
    persona.close()


def start(stack, *processes, **settings):
    """Have them run with today's settings but for these."""
    changed = Site(stack.site.data_dir, {**stack.site.values, **settings})
    restart.start(Stack(changed, durable=False, processes=PROCESSES), processes)


def snapshot_of(alice, sandbox_id):
    made = alice.post(f"/v1/sandboxes/{sandbox_id}/snapshot").json()["id"]
    becomes(lambda: alice.get(f"/v1/snapshots/{made}").status_code, 200)
    return made


def on_host(stack):
    """What there is of machines and snapshots."""
    return {path.name for kind in ("sandboxes", "snapshots")
            for path in (stack.settings.node_dir / kind).iterdir()}


@pytest.mark.slow
def test_what_is_in_the_dump_lives_and_what_was_made_since_goes(
        stack, alice, shell_blocks, tmp_path):
    (backup,), (back, deploys) = shell_blocks("Backup"), shell_blocks("Restore")
    begin = f"set -e; BACKUP={tmp_path}\n{backup.partition('mkdir')[0]}"
    kept, awake, gone = (alice.create(ports=[3000])["id"] for _ in range(3))
    alice.write(kept, {"note": "kept"})
    alice.post(f"/v1/sandboxes/{kept}/hibernate").raise_for_status()
    template = snapshot_of(alice, awake)
    stack.run(f"set -e; BACKUP={tmp_path}\n{backup}")
    assert {path.name for path in tmp_path.glob("data/*")} == {"svc.sql", "s3"}
    assert {path.name for path in tmp_path.glob("secrets/*")} - {".env"} == {"keys", "stack.env"}
    assert list(tmp_path.glob("secrets/keys/*.private.pem"))
    assert (tmp_path / "data/s3" / stack.settings.s3_bucket).is_dir()

    alice.delete(f"/v1/sandboxes/{gone}")
    since = alice.create(ports=[3000])["id"]
    captured = snapshot_of(alice, since)
    assert on_host(stack) >= {kept, awake, template, since, captured}
    assert gone not in on_host(stack)

    # 1. and 2.
    restart.stop(stack)
    assert {stack.supervisor.state(name) for name in PROCESSES} == {"STOPPED"}
    stack.run(begin + back)
    with redis.Redis.from_url(stack.settings.redis_url) as broker:
        assert broker.dbsize() == 0
    assert query(stack, "SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = 'public'"
                 ) == [("svc",)]
    # 3. to 5.
    stack.run(begin + deploys)
    start(stack, "node-ctl", SVC_ORPHAN_BRAKE="0", SVC_STORE_GRACE_S="2592000")
    for told in ("1 sandboxes look orphaned at once", "1 snapshots look orphaned at once",
                 "1 sandboxes have no files on this node"):
        until(lambda told=told: told in stack.logs("node-ctl", 1000))
    assert on_host(stack) >= {kept, awake, template, since, captured}
    # 7.
    restart.stop(stack)
    start(stack, "node-ctl")
    until(lambda: not {since, captured} & on_host(stack))
    becomes(lambda: query(stack, "SELECT status FROM sandboxes WHERE id = %s", gone),
            [("stopped",)])
    start(stack, *PROCESSES)
    until(alice.is_answered)

    assert "files" in alice.get(f"/v1/sandboxes/{gone}").json()["error"]
    assert alice.post(f"/v1/sandboxes/{kept}/wake").json()["status"] == "running"
    assert alice.exec(kept, "cat", "note")["stdout"] == "kept"
    assert alice.exec(awake, "true")["exitCode"] == 0
    fork = alice.post("/v1/sandboxes/fork", json={"snapshotId": template}).json()["id"]
    alice.wait_for(fork, "running")
    assert on_host(stack) >= {kept, awake, template, fork}
