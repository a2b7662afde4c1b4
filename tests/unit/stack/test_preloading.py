"""The plug-in of supervisord that has loaded what processes of ours import."""
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from bin.stack.site import ROOT
from bin.stack.supervision import preloading

# One thread, no file left open, and nothing that depends on a setting: forks have their own.
LOADED = """
import os, sys, threading
from bin.stack.supervision import preloading
before = os.listdir("/proc/self/fd")
preloading.load()
from config.settings import get_settings
from models.database import database
assert len(os.listdir("/proc/self/task")) == threading.active_count() == 1
assert len(os.listdir("/proc/self/fd")) == len(before)
# Of what is described of a vendor's services, the object store's is kept.
import boto3
regions = boto3.DEFAULT_SESSION.get_available_regions
assert "us-east-1" in regions("s3") and not regions("ec2")
assert get_settings.cache_info().misses == 0 and database.is_closed()
print(*sys.modules)
"""


@pytest.fixture(scope="module")
def loaded():
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SVC_")}
    return set(subprocess.run([sys.executable, "-c", LOADED], cwd=ROOT, env=environ, check=True,
                              capture_output=True, text=True, timeout=60).stdout.split())


def test_the_code_of_every_process_is_loaded_and_no_setting_is_read(loaded):
    assert {"app.api.factory", "app.identity.factory", "app.shell.factory", "app.gateway.server",
            "app.guest_gateway.npm", "app.releases.tree", "tasks.relay", "nodeworker.startup",
            "nodeworker.hypervisor.qemu.driver", "celery.apps.worker", "boto3",
            "gunicorn.app.wsgiapp", "httpcore"} <= loaded


def test_what_reads_settings_when_it_is_imported_is_not_loaded(loaded):
    assert not loaded & set(preloading._LEFT_OUT)


def test_the_command_line_of_httpx_and_what_it_formats_with_are_not_loaded(loaded):
    """Only a tool of developers brings that library; httpx loads it wherever it is there."""
    assert "httpx" in loaded and "rich" not in loaded


@pytest.fixture
def plugin(monkeypatch, tmp_path):
    """A plug-in that has loaded a module, whose file is `source`; what it starts instead of going
    on as a process is in `started`, what it goes on as in `became`."""
    source, started, became = tmp_path / "module.py", [], []
    source.write_text("")
    monkeypatch.setattr(preloading, "load", lambda: None)
    monkeypatch.setattr(preloading, "_forget_the_parent", lambda: None)
    monkeypatch.setattr(preloading.setproctitle, "setproctitle", lambda title: None)
    monkeypatch.setattr(preloading.become, "run", became.append)
    monkeypatch.setattr(preloading.sys, "modules", {"m": SimpleNamespace(__file__=str(source))})
    options = SimpleNamespace(execve=lambda *words: started.append(words))
    made = preloading.install(SimpleNamespace(options=options))
    return SimpleNamespace(source=source, started=started, became=became, load=made.load,
                           execve=options.execve)


OURS = ["env", "-i", "python", *preloading.COMMAND, "/start/relay.json"]


def test_a_process_of_ours_goes_on_in_the_fork(plugin):
    assert plugin.load() and not plugin.load()
    plugin.execve("/usr/bin/env", OURS, {})
    assert [str(path) for path in plugin.became] == ["/start/relay.json"] and not plugin.started


@pytest.mark.parametrize("change", ["another", "newer", "loaded nothing"])
def test_what_is_not_loaded_as_it_is_now_is_started_as_a_program(plugin, change):
    words = OURS
    if change != "loaded nothing":
        plugin.load()
    if change == "another":
        words = ["env", "-i", "/bin/sh", "/start/redis.sh"]
    if change == "newer":
        plugin.source.write_text("changed")
    plugin.execve("/usr/bin/env", words, {"A": "1"})
    assert plugin.started == [("/usr/bin/env", words, {"A": "1"})]
