"""The web UI lfg in a real sandbox, through its preview, in a real browser: put to sleep, woken by
the browser, and on it goes."""
import io
import tarfile
from pathlib import Path

import pytest

from bin.stack.site import ROOT
from tests.browser.chromium import PROGRAM
from tests.host.javascript import lfg_packages
from tests.host.lfg_page import Page
from tests.host.lfg_server import APP
from tests.stack.previews import Preview
from tests.stack.waiting import eventually

pytestmark = [pytest.mark.vm, pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium")]
PICTURES = ROOT / "var" / "pictures"
PORT = 8766
# A stand-in for an agent: the real ones are not on every machine that runs the tests.
AGENT = r"""#!/bin/bash
printf '\e[1;36m  an agent\e[0m in %s\n\n' "$PWD"
while read -rp $'\e[35m>\e[0m ' task; do
    printf 'def greet(name):\n    return f"Hello, {name}!"\n' > greet.py
    printf 'from greet import greet\n\nassert greet("you") == "Hello, you!"\n' > test_greet.py
    printf '\e[2m  wrote\e[0m greet.py\n\e[2m  wrote\e[0m test_greet.py\n'
    python3 test_greet.py && printf '\e[32m  ✓\e[0m %s: done\n\n' "$task"
done
"""


def packed() -> bytes:
    """What an image has in /opt/svc/presets/lfg, and an agent."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        archive.add(APP, "app")
        for name in ("xterm", "addon-fit"):
            package = Path("node_modules/@xterm") / name
            for part in ("package.json", "lib", "css"):
                if (lfg_packages().parent / package / part).exists():
                    archive.add(lfg_packages().parent / package / part, package / part)
        agent = tarfile.TarInfo("claude")
        agent.size, agent.mode = len(AGENT.encode()), 0o755
        archive.addfile(agent, io.BytesIO(AGENT.encode()))
    return data.getvalue()


@pytest.fixture(scope="module")
def preview(vm_stack, vm_alice):
    made = vm_alice.create(ports=[PORT])["id"]
    vm_alice.request("PUT", f"/v1/sandboxes/{made}/uploads/lfg.tar.gz",
                     content=packed()).raise_for_status()
    done = vm_alice.exec(
        made, "bash", "-c",
        "set -e; mkdir -p /opt/svc/presets/lfg; cd /opt/svc/presets/lfg;"
        " tar xzf /home/user/lfg.tar.gz --no-same-owner; ln -s app/start start;"
        " mv claude /usr/local/bin; rm /home/user/lfg.tar.gz;"
        " su user -c 'mkdir /home/user/project; cd /home/user/project; git init -q;"
        " echo A library that greets. > README.md'")
    assert done["exitCode"] == 0, done
    vm_alice.exec(made, "/opt/svc/presets/lfg/start", detached=True, cwd="/home/user/project")
    found = Preview(vm_stack, vm_alice, made, PORT)
    assert eventually(lambda: found.get("/").status_code == 200, 60)
    yield found
    found.delete()


def test_an_agent_is_driven_sleeps_and_goes_on(browser, preview):
    page = Page(browser, preview.url)
    page.resize(1280, 720)
    page.press("#choices button", "claude")
    page.shows("an agent in /home/user/project")
    page.type("Write a greeting")
    page.shows("Write a greeting: done", 60)
    page.press("#changes-button", "Changes")
    page.press(".change", "N")
    page.until(lambda: page.run("find('content-body').innerText").startswith("diff"))
    PICTURES.mkdir(parents=True, exist_ok=True)
    browser.picture(PICTURES / "lfg.png")
    page.press("[role=tab]", "shell")
    page.type("id -un; stty size; nonce=$RANDOM$RANDOM; echo $nonce > /dev/shm/nonce; clear")
    page.until(lambda: read(preview, "/dev/shm/nonce"))
    nonce = read(preview, "/dev/shm/nonce")
    page.run("window.ahead = 61000")
    preview.sleep()
    page.shows("Asleep, or out of reach")
    assert preview.status() == "hibernated", "a page that nobody uses woke it"
    page.move()
    page.until(lambda: page.run("find('connection').innerText") == "connected", 120)
    assert preview.status() == "running"
    page.focus_terminal()
    page.type("echo again $nonce $((6 * 7))")
    page.shows(f"again {nonce} 42")
    page.resize(900, 600)
    page.until(lambda: int(page.size().split()[1]) < 80)
    page.type("clear; stty size; id -un")
    page.shows(page.size())
    page.shows("user")
    page.press("[role=tab]", "claude")
    page.type("Again")
    page.shows("Again: done", 60)
    assert page.problems() == []


def test_a_server_that_crashes_is_started_again_and_one_that_is_told_to_end_is_not(preview):
    def servers(*words):
        return preview.owner.exec(preview.sandbox_id, *words, "-f", "lfg/app/server/main.ts")
    first = servers("pgrep", "-u", "user")["stdout"].split()
    servers("pkill", "-KILL", "-u", "user")
    assert eventually(lambda: preview.get("/").status_code == 200, 60)
    second = servers("pgrep", "-u", "user")["stdout"].split()
    assert len(first) == len(second) == 1 and first != second
    servers("pkill", "-TERM", "-u", "user")
    assert eventually(lambda: servers("pgrep")["exitCode"] == 1, 30)
    assert "ended with 137 and starts again" in read(preview, "/var/log/svc/lfg.log")


def read(preview, path):
    return preview.owner.exec(preview.sandbox_id, "cat", path)["stdout"].strip()
