"""The way back to yesterday's dump, step by step as docs/operations.md has it ("Restore")."""
import subprocess

import pytest
import redis

from bin.stack.running import Stack, private_stack
from bin.stack.servers import postgres_bin
from bin.stack.site import Site
from bin.stack.supervision import supervise
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


def postgres(stack, program, *words):
    programs = postgres_bin(stack.site.data_dir / "postgres" / "data")
    subprocess.run([programs / program, *words, stack.settings.database_url], check=True,
                   stdout=subprocess.DEVNULL)


def start(stack, *processes, **settings):
    """Have them run with today's settings but for these."""
    changed = Site(stack.site.data_dir, {**stack.site.values, **settings})
    Stack(changed, durable=False, processes=PROCESSES).supervisor.launch()
    stack.restart(*processes)


def snapshot_of(alice, sandbox_id):
    made = alice.post(f"/v1/sandboxes/{sandbox_id}/snapshot").json()["id"]
    becomes(lambda: alice.get(f"/v1/snapshots/{made}").status_code, 200)
    return made


def on_host(stack):
    """What there is of machines and snapshots."""
    return {path.name for kind in ("sandboxes", "snapshots")
            for path in (stack.settings.node_dir / kind).iterdir()}


@pytest.mark.slow
def test_what_is_in_the_dump_lives_and_what_was_made_since_goes(stack, alice, tmp_path):
    dump = tmp_path / "dump.sql"
    kept, awake, gone = (alice.create(ports=[3000])["id"] for _ in range(3))
    alice.write(kept, {"note": "kept"})
    alice.post(f"/v1/sandboxes/{kept}/hibernate").raise_for_status()
    template = snapshot_of(alice, awake)
    postgres(stack, "pg_dump", "--file", str(dump))

    alice.delete(f"/v1/sandboxes/{gone}")
    since = alice.create(ports=[3000])["id"]
    captured = snapshot_of(alice, since)
    assert on_host(stack) >= {kept, awake, template, since, captured}
    assert gone not in on_host(stack)

    # 1. and 2.
    stack.stop(*reversed(PROCESSES))
    query(stack, "DROP SCHEMA public CASCADE")
    query(stack, "CREATE SCHEMA public")
    postgres(stack, "psql", "--quiet", "--set", "ON_ERROR_STOP=1", "--file", str(dump))
    stack.run(supervise.release_command())
    with redis.Redis.from_url(stack.settings.redis_url) as broker:
        broker.flushall()
    # 3. to 5.
    query(stack, "UPDATE deploys SET next_version = next_version + 1000")
    start(stack, "node-ctl", SVC_ORPHAN_BRAKE="0", SVC_STORE_GRACE_S="2592000")
    for told in ("1 sandboxes look orphaned at once", "1 snapshots look orphaned at once",
                 "1 sandboxes have no files on this node"):
        until(lambda told=told: told in stack.logs("node-ctl", 1000))
    assert on_host(stack) >= {kept, awake, template, since, captured}
    # 7.
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
