"""The table of processes: each is told exactly the settings that the code it runs reads."""
import ast
import re
import subprocess
import sys
from functools import lru_cache

import grimp
import pytest

from bin.stack.site import ROOT
from bin.stack.supervision import supervise
from config.processes import PROCESSES
from config.settings import Settings

FIELDS = set(Settings.__dataclass_fields__)
LANES = ("ctl", "ops", "bulk", "archive", "deploy")
CELERY = "config.celery_command"
NODE = (CELERY, "nodeworker.worker", "nodeworker.jobs")
WORKER = "app.http.server.worker"
# What each process imports first: the modules that its line of the Procfile names, and gunicorn's
# worker class, which its configuration names.
ENTRIES = {
    "api": ("app.api.factory", "config.gunicorn.api", "app.api.worker"),
    "identity": ("app.identity.factory", "config.gunicorn.identity", WORKER),
    "shell": ("app.shell.factory", "config.gunicorn.shell", "app.shell.worker"),
    "edge": ("config.nginx.__main__",),
    "gateway": ("app.gateway.__main__",),
    "guest-gateway": ("app.guest_gateway.__main__",),
    "releases": ("app.releases.__main__",),
    "control": (CELERY, "tasks.celery_app", "tasks.control"),
    "webhooks": (CELERY, "tasks.webhooks"),
    "relay": ("tasks.relay",),
    "beat": (CELERY, "tasks.celery_app", "tasks.scheduler"),
    "flower": (CELERY, "tasks.celery_app", "config.flowerconfig"),
    **{f"node-{lane}": NODE for lane in LANES},
}
# Modules that come along with an import, but decide nothing in that process.
NOT_RUN = {
    "*": {"config.settings", "config.settings_checks"},
    "identity": {"app.http.admission", "app.http.identity_mirror", "app.http.rate_limits",
                 "config.celery", "services.accounts.api_keys", "services.guests.box_keys",
                 "services.hosts.nodes", "services.hosts.placement", "services.hosts.port_room",
                 "services.hosts.sandbox_ports", "services.llm.sandbox_url",
                 "services.metering.credit", "services.metering.prices"},
    "shell": {"app.http.admission", "app.http.bodies.buffers", "services.hosts.port_room",
              "services.hosts.sandbox_ports", "services.metering.credit",
              "services.metering.prices"},
    "control": {"tasks.schedule", "services.guests.box_keys", "services.llm.callers",
                "services.llm.sandbox_url"},
    "webhooks": {"services.hosts.nodes", "services.snapshots.deletion"},
    "flower": {"tasks.schedule", "services.hosts.nodes", "services.snapshots.deletion"},
    # what a node makes, the builders of deploys, it makes under no key
    **{f"node-{lane}": {"services.operations.idempotency"} for lane in LANES},
}
# A module of which a process runs, and of all that comes along with it, only the making of queries,
# for which no setting is read.
MAKES_QUERIES = {"beat": "tasks.due_sweeps"}
# Settings read where the process never comes: only the identity host and operators mint tokens,
# and operators alone those of services; only `control` ends old snapshots, and it makes no keys.
NOT_READ = {"api": {"user_jwt_s", "service_token_s", "snapshot_days", "node_id"},
            "control": {"node_id", "static_collect_s", "api_key_limit", "api_keys_per_hour"},
            "identity": {"service_token_s"},
            # how long version N-1 is served is set where a version goes live
            "releases": {"static_collect_s"},
            **dict.fromkeys(("shell", "guest-gateway"), {
                "user_jwt_s", "service_token_s", "api_key_limit", "api_keys_per_hour"})}
# Told although our own code does not read it: what the line of the Procfile or the image's
# operator commands use.
ALSO_TOLD = {"data_dir", "log_level", "ctl_concurrency", "ops_concurrency", "archive_concurrency",
             "deploy_concurrency", "guest_dns", "guest_distro"}


@pytest.fixture(scope="module")
def graph():
    return grimp.build_graph("app", "tasks", "nodeworker", "services", "models", "objects",
                             "config", "guest", cache_dir=None)


@lru_cache(maxsize=None)
def reads(module):
    """Fields of Settings that a module reads from something called settings."""
    path = ROOT / (module.replace(".", "/") + ".py")
    tree = ast.parse((path if path.exists() else path.with_suffix("") / "__init__.py").read_text())
    return {
        node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)
        and node.attr in FIELDS and "settings" in ast.unparse(node.value).lower()
    }


def read_by(graph, name):
    modules = set(ENTRIES[name]).union(*map(graph.find_upstream_modules, ENTRIES[name]))
    modules -= NOT_RUN["*"] | NOT_RUN.get(name, set())
    if name in MAKES_QUERIES:
        modules -= graph.find_upstream_modules(MAKES_QUERIES[name])
    return set().union(*map(reads, modules)) - NOT_READ.get(name, set())


def test_the_table_has_every_process_of_the_procfile():
    assert list(PROCESSES) == list(supervise.procfile())
    assert set(PROCESSES) == set(ENTRIES)


@pytest.mark.parametrize("name", PROCESSES)
def test_a_process_is_told_what_its_code_reads_and_nothing_else(graph, name):
    told, read = PROCESSES[name].settings, read_by(graph, name)
    assert read - told == set(), "would silently be the default: add it in config/processes.py"
    assert told - read <= ALSO_TOLD, "is told for nothing: remove it in config/processes.py"


@pytest.mark.parametrize("name", PROCESSES)
def test_what_its_line_of_the_procfile_needs_is_told(name):
    used = set(re.findall(r"\$(SVC_\w+)", supervise.procfile()[name]))
    assert used <= PROCESSES[name].variables


def test_only_the_node_workers_are_root_and_no_two_others_share_an_account():
    assert {name for name, row in PROCESSES.items() if row.is_root} == {
        name for name in PROCESSES if name.startswith("node-")}
    others = [row.account for row in PROCESSES.values() if not row.is_root]
    assert len(others) == len(set(others))


@pytest.mark.parametrize(("secret", "holders"), [
    ("session_secret", {"identity"}), ("signing_keys_dir", {"identity"}),
    ("edge_secret", {"identity", "edge"}), ("webhook_secrets", {"webhooks"}),
    ("flower_basic_auth", {"flower"}),
    ("s3_secret_key", {"releases", "guest-gateway",
                       *(name for name in PROCESSES if name.startswith("node-"))}),
    ("guest_secret", {"api", "shell", "guest-gateway",
                      *(name for name in PROCESSES if name.startswith("node-"))}),
    ("variables_secret", {"api", *(name for name in PROCESSES if name.startswith("node-"))}),
    ("database_url", set(PROCESSES) - {"edge", "flower"}),
])
def test_who_holds_a_secret(secret, holders):
    assert {name for name, row in PROCESSES.items() if secret in row.settings} == holders


@pytest.mark.parametrize("name", ["control", "webhooks", "beat", "node-ctl"])
def test_a_worker_loads_nothing_that_only_other_programs_use(name):
    """Each costs memory in every worker, and time at each start."""
    assert f" -m {CELERY} " in supervise.procfile()[name]
    script = f"import sys, {', '.join(ENTRIES[name])}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, timeout=60,
                            capture_output=True, text=True).stdout.split()
    assert CELERY in loaded
    assert not {"flower", "tornado", "prompt_toolkit", "boto3", "flask"} & set(loaded)


def test_flower_loads_no_shell():
    script = """
import sys
from config.celery_command import main
assert main.get_command(None, "flower").name == "flower"
print(*sys.modules)
"""
    loaded = subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, timeout=60,
                            capture_output=True, text=True).stdout.split()
    assert "tornado" in loaded and not {"prompt_toolkit", "click_repl"} & set(loaded)


@pytest.mark.parametrize("name", ["api", "identity", "shell"])
def test_workers_are_forked_from_a_process_that_has_loaded_the_code_and_has_one_thread(name):
    """A thread, or what it held, would be gone in the workers."""
    uri = supervise.procfile()[name].split()[-1].strip('"')
    script = f"""
import os, sys, threading
from types import SimpleNamespace
from config.gunicorn import {name} as configuration
configuration.on_starting(SimpleNamespace(app=SimpleNamespace(app_uri={uri!r})))
assert {uri.partition(":")[0]!r} in sys.modules
assert threading.active_count() == len(os.listdir("/proc/self/task")) == 1
"""
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, timeout=60)
