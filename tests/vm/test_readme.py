"""The examples of the README, in one shell, as they stand."""
import re
import subprocess

import pytest

from bin.stack.site import ROOT

SAID = ("sleep 1000", "-8000.preview.", "Directory listing", '"templateStatus":"ready"',
        "-8766.preview.", "<h1>Hello</h1>", "Visitor number 1", "up\n")


def examples():
    """The blocks for a shell after the one with `make up`."""
    return re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[1:]


@pytest.mark.timeout(600)
def test_the_examples_work_as_they_stand(vm_stack):
    script = "\n".join(["set -eu", *examples()]).replace(
        ". var/dev.env", f". {vm_stack.site.data_dir}/dev.env")
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, env=vm_stack.env, text=True,
                          capture_output=True, timeout=580, check=False)
    told = f"{done.stdout}\n{done.stderr}"
    assert done.returncode == 0 and '{"error"' not in done.stdout, told
    assert [text for text in SAID if text not in done.stdout] == [], told
    ids = set(re.findall(r'^{"id":"(\w{12})"', done.stdout, re.MULTILINE))
    ended = set(re.findall(r'^{"id":"(\w{12})","status":"stopped"', done.stdout, re.MULTILINE))
    assert ids and ids == ended, told
