"""Who can read the file of SVC_LLM_CONFIG and its key files: root and the guest gateway."""
import itertools
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from bin.console import Advice
from bin.stack import unix_accounts
from bin.stack.health import answers, guest_gateway_health
from bin.stack.running import Stack
from bin.stack.site import ROOT, Site
from config.processes import PROCESSES

KEY = "sk-the-operators-own-key"
ACCOUNTS = sorted({row.account for row in PROCESSES.values() if not row.is_root})


@pytest.fixture
def files(servers, tmp_path_factory):
    """The two files, readable by everybody, in a directory that everybody may enter."""
    directory = tmp_path_factory.mktemp("llm")
    above = itertools.takewhile(lambda path: path != Path(tempfile.gettempdir()),
                                directory.parents)
    for path in (directory, *above):
        path.chmod(0o711)
    path, key = directory / "llm.json", directory / "openai.key"
    path.write_text(json.dumps({"upstreams": [
        {"name": "o", "kind": "openai", "url": "http://o.test", "keyFile": key.name}]}))
    key.write_text(KEY)
    for file in (path, key):
        file.chmod(0o644)
    return path, key


def can_read(account, path):
    return subprocess.run(["setpriv", f"--reuid={account}", f"--regid={account}", "--clear-groups",
                           "test", "-r", str(path)], check=False).returncode == 0


def test_only_the_guest_gateway_reads_them(files):
    assert all(can_read("svc-api", path) for path in files), "or this test shows nothing"
    unix_accounts.close_llm_files(files[0])
    for path in files:
        assert [name for name in ACCOUNTS if can_read(name, path)] == ["svc-guest-gateway"]


def test_the_gateway_of_a_stack_reads_them_where_they_are_and_when_they_change(sim_stack, files):
    path, _ = files
    site = Site(sim_stack.site.data_dir, {**sim_stack.site.values, "SVC_LLM_CONFIG": str(path)})
    other = Stack(site, durable=False)
    unix_accounts.prepare(site)
    try:
        other.supervisor.launch()
        other.restart("guest-gateway")
        until(lambda: answers(guest_gateway_health(other.settings)))
        assert os.stat(path).st_mode & 0o777 == 0o640
        draft = path.with_name("draft")
        draft.write_text("no JSON")
        draft.chmod(0o644)
        draft.replace(path)
        until(lambda: "keeps its old configuration: SVC_LLM_CONFIG, llm.json: is not JSON"
              in other.logs("guest-gateway", 50))
    finally:
        sim_stack.supervisor.launch()
        sim_stack.restart("guest-gateway")
    until(lambda: answers(guest_gateway_health(sim_stack.settings)))
    assert KEY not in other.logs("guest-gateway", 200)


def until(true, patience_s=30):
    deadline = time.monotonic() + patience_s
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_what_cannot_work_is_told_at_the_start(files):
    path, key = files
    path.parent.chmod(0o700)
    with pytest.raises(Advice, match="may not enter .* chmod 711"):
        unix_accounts.close_llm_files(path)
    path.parent.chmod(0o711)
    key.unlink()
    with pytest.raises(Advice, match="openai.key cannot be used: No such file") as told:
        unix_accounts.close_llm_files(path)
    assert KEY not in str(told.value)
    with pytest.raises(Advice, match="more of var/"):
        unix_accounts.close_llm_files(ROOT / "var" / "llm.json")
