"""A process with a setting that is wrong or missing ends at once and names it, whichever it is; it
never runs on with half of its start undone."""
import os
import subprocess

import pytest

from bin.console import explained
from bin.stack.running import private_stack
from bin.stack.site import ROOT
from bin.stack.supervision import supervise

# One lane of the node stands for all: they are one program.
NAMES = ("api", "identity", "control", "webhooks", "relay", "beat", "node-ctl", "flower")


def start(name, data_dir, **settings):
    environ = {"PATH": f"{ROOT}/.venv/bin:{os.environ['PATH']}", "SVC_DATA_DIR": str(data_dir),
               "SVC_NODE_ID": "n", **settings}
    return subprocess.run(["sh", "-c", supervise.procfile()[name]], cwd=ROOT, env=environ,
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60,
                          check=False)


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_setting_is_named_and_ends_the_process(tmp_path, name):
    ended = start(name, tmp_path, SVC_LOG_LEVEL="LOUD")
    assert ended.returncode != 0
    assert "SVC_LOG_LEVEL must be one of DEBUG, INFO, WARNING, ERROR" in ended.stdout


@pytest.mark.parametrize(("name", "settings", "told"), [
    ("flower", {}, "SVC_FLOWER_BASIC_AUTH"),
    ("webhooks", {"SVC_WEBHOOK_RECEIVER_URL": "http://127.0.0.1:1/"}, "SVC_WEBHOOK_SECRETS"),
    ("control", {"SVC_BUILDER_SIZE": "medum"}, "SVC_BUILDER_SIZE names medum; sizes are small,"),
    ("relay", {"SVC_DATABASE_URL": "postgresql://svc:sesame@h/svc?sslmoed=x"}, "SVC_DATABASE_URL"),
])
def test_what_a_process_cannot_do_without_ends_it(tmp_path, name, settings, told):
    ended = start(name, tmp_path, **settings)
    assert ended.returncode != 0 and told in ended.stdout and "sesame" not in ended.stdout


@pytest.mark.parametrize(("setting", "told"), [
    ({"SVC_OVERSELL": "much"}, "SVC_OVERSELL is not valid"),
    ({"SVC_JWT_ALGORITHMS": "RS9"}, "SVC_JWT_ALGORITHMS: RS9 is not one of EdDSA, ES256"),
    ({"SVC_LLM_CONFIG": "/nowhere/llm.json"}, "SVC_LLM_CONFIG, llm.json: cannot be read"),
])
def test_a_command_of_make_says_it_in_a_sentence(clean_host, capsys, setting, told):
    stack = private_stack("test-bad", setting, processes=())
    try:
        with pytest.raises(SystemExit) as ended, explained():
            stack.prepare()
    finally:
        stack.destroy()
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert said.startswith(f"\nerror: {told}") and said.count("\n") == 2


ANYBODY = """
import os, sys
from bin.console import explained
os.setuid(65534)
with explained():
    open(sys.argv[1])
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_who_may_not_read_the_settings_is_told_in_a_sentence(tmp_path):
    (tmp_path / "stack.env").touch(0o600)
    asked = subprocess.run([ROOT / ".venv/bin/python", "-c", ANYBODY, tmp_path / "stack.env"],
                           cwd=ROOT, text=True, capture_output=True, check=False)
    assert asked.returncode == 1
    assert asked.stderr == f"\nerror: {tmp_path}/stack.env: only root may do this.\n"
