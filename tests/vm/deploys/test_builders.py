"""What projects of real guests get of the machines that build them: packages, and an end."""
import json

import pytest

from tests.clients.guest_gateway import running_gateway
from tests.fakes.npm_registry import NpmRegistry
from tests.stack.database import query
from tests.stack.waiting import becomes, until
from tests.tls.clients import client

# Files by name that make a page of what the package `greet` says.
GREETING = {
    "build.js": "import greet from 'greet'; import { mkdirSync, writeFileSync } from 'fs';"
                " mkdirSync('dist', { recursive: true });"
                " writeFileSync('dist/index.html', greet + process.env.BUN_JSC_useDFGJIT);",
}
# Things that no app has, and that reading it may hang on, then 50 GB, then more than the disk has.
HOLES = ("mkdir -p dist && cd dist && echo page > index.html && ln -s / root && mknod disk b 8 0"
         " && mkfifo pipe && ln -s ../../../etc/passwd up && ln -s loop loop"
         " && truncate -s 50G film && ls; fallocate -l 60G full; head -c 99M /dev/zero >more; true")
# More than a log keeps, then more processes than there may be.
FORKS = "yes flood | head -c 1500000; python3 -c 'import os, time\nwhile True:" \
        " os.fork() or time.sleep(1000)'"
# 8 GiB, by system calls: an emulated guest is slower with a fault for each page. The machine has 2.
MEMORY = ("python3 -c 'import mmap\nkept = []\nwhile len(kept) < 128:"
          " kept.append(mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS"
          " | mmap.MAP_POPULATE))'")
LISTENS = "bun -e 'Bun.serve({port: 3000, fetch: () => new Response()})'"


@pytest.fixture
def taken(vm_alice, editor):
    """Takes a snapshot of files, which are all of the project."""
    def take(files):
        vm_alice.exec(editor, "bash", "-c", "rm -rf /home/user/*")
        vm_alice.write(editor, files)
        made = vm_alice.post(f"/v1/sandboxes/{editor}/filesystem-snapshot").raise_for_status()
        return made.json()["id"]
    return take


def package(version):
    return json.dumps({"scripts": {"build": "node build.js"}, "dependencies": {"greet": version}})


def no_builders(stack):
    return query(stack, "SELECT id FROM sandboxes WHERE kind = 'builder' AND status != 'stopped'"
                 ) == []


@pytest.mark.timeout(900)
def test_packages_come_through_the_cache_and_a_missing_one_is_told(
        vm_stack, deploys, taken, tmp_path):
    registry = NpmRegistry()
    registry.publish("greet", "1.0.0", {"index.js": "export default 'hello ';"}, type="module")
    try:
        with running_gateway(vm_stack, None, tmp_path, SVC_NPM_REGISTRY=registry.url):
            good, bad = (taken({**GREETING, "package.json": package(version)})
                         for version in ("1.0.0", "2.0.0"))
            deploys.publish("greeting", good, **{"async": True})
            failed = deploys.publish_patiently("missing", bad)
            becomes(lambda: deploys.get("greeting")["status"], "live", 400)
    finally:
        registry.close()
    with client(vm_stack, "greeting.apps.localhost") as http:
        emulated = vm_stack.settings.accelerator == "tcg" or "undefined" not in http.get("/").text
        assert http.get("/").text == ("hello 0" if emulated else "hello undefined")
    assert failed["status"] == "failed"
    first, *lines = failed["error"].splitlines()
    assert first.startswith("The build failed with exit code 1.")
    assert any("greet" in line and "2.0.0" in line for line in lines), failed["error"]
    becomes(lambda: no_builders(vm_stack), timeout_s=30)


@pytest.mark.timeout(900)
def test_hostile_projects_get_an_error_and_leave_no_builder(vm_stack, deploys, taken):
    hostile = {"holes": {"build": HOLES}, "forks": {"build": FORKS}, "memory": {"build": MEMORY}}
    for slug, said in hostile.items():
        deploys.publish(slug, taken({"svc.json": json.dumps(said)}), **{"async": True})
    until(lambda: {deploys.get(slug)["status"] for slug in hostile} == {"failed"}, 600)
    # Not beside the builds: on a slow machine it would not listen in time for lack of CPU.
    text = {"start": LISTENS, "database": "svc.json"}
    deploys.publish("text", taken({"svc.json": json.dumps(text)}), **{"async": True})
    until(lambda: deploys.get("text")["status"] == "failed", 120)
    assert "The output is larger than 1024 MB" in deploys.get("holes")["error"]
    assert "film" in deploys.log("holes") and "No space left" in deploys.log("holes")
    assert "svc.json, is no SQLite file" in deploys.get("text")["error"]
    error = deploys.get("forks")["error"]
    assert "exit code 1." in error and "temporarily unavailable" in error.splitlines()[-1], error
    assert "exit code 137." in deploys.get("memory")["error"]
    assert "\n[the builder ran out of memory]\n" in deploys.log("memory"), "its agent told it"
    log = deploys.log("forks")
    assert "flood\nflood\n" in log and "[the log is longer" in log
    assert len(log) < 2 << 20
    becomes(lambda: no_builders(vm_stack), timeout_s=60)
    assert query(vm_stack, "SELECT prefix FROM deploy_prefixes p JOIN deploys d USING (app_id)"
                           " WHERE d.slug = 'holes' AND due_at IS NULL") == []
