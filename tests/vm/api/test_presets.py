"""Agent presets in real machines: the agents themselves are run, a broken one is found."""
import json
import os
import re
import shutil
import subprocess

import pytest

from guest.image.published import only_builder, point
from guest.presets import LOCK
from tests.clients.agents import TOLD, codex_at_work, install_log
from tests.stack.waiting import until

EMULATED = "BUN_JSC_useDFGJIT"
# A terminal that nobody needs to look at: what is written into `keys` is typed, `screen` is shown.
ON_TERMINAL = ("cd && mkfifo keys && TERM=xterm-256color exec"
               " script -qfc 'stty rows 30 cols 100; exec codex' screen <> keys > /dev/null")


@pytest.fixture
def create(presets_alice):
    """Creates a small sandbox, and deletes it afterwards."""
    made = []

    def send(**body):
        answer = presets_alice.post("/v1/sandboxes", json={"size": "small", **body})
        assert answer.status_code == 201, answer.text
        made.append(answer.json()["id"])
        return answer.json()

    yield send
    for sandbox in made:
        presets_alice.delete(f"/v1/sandboxes/{sandbox}")


def run(alice, sandbox, line, **body):
    answer = alice.post(f"/v1/sandboxes/{sandbox}/exec",
                        json={"cmd": line, "timeoutMs": 180_000, **body})
    assert answer.status_code == 200, answer.text
    return answer.json()


def shell(alice, sandbox, line, **body):
    answer = run(alice, sandbox, line, **body)
    assert answer["exitCode"] == 0, answer
    return answer["stdout"].strip()


def test_without_a_preset_there_is_no_agent_and_no_node(presets_alice, create):
    plain = create()["id"]
    presets_alice.wait_for(plain, "running")
    for program in ("node", *TOLD):
        assert run(presets_alice, plain, f"command -v {program}")["exitCode"], program


def test_what_bun_is_told_under_emulation_unless_the_caller_says_otherwise(presets_alice, create):
    shown = create(template="codex")
    emulated = "TCG" in shell(presets_alice, shown["id"], "cat /proc/cpuinfo")
    told = f"echo ${{{EMULATED}-unset}}"
    assert shell(presets_alice, shown["id"], told) == ("0" if emulated else "unset")
    assert shell(presets_alice, shown["id"], told, env={EMULATED: "1"}) == "1"
    own = create(template="codex", env={EMULATED: "1"})
    assert shell(presets_alice, own["id"], told) == "1"


def start_codex(alice, sandbox):
    """Have it wait for a task on a terminal; its process id."""
    alice.write(sandbox, codex_at_work("http://nowhere.test"))
    shell(alice, sandbox, "chown -R user:user /home/user")
    alice.post(f"/v1/sandboxes/{sandbox}/exec",
               json={"cmd": f'su user -c "{ON_TERMINAL}"', "detached": True}).raise_for_status()
    until(lambda: "Ask Codex" in screen(alice, sandbox), 90)
    return shell(alice, sandbox, "pgrep -x codex")


def screen(alice, sandbox):
    """What the terminal has shown last, without what moves the cursor."""
    shown = run(alice, sandbox, "tail -c 4000 /home/user/screen")["stdout"]
    return re.sub(r"\x1b\[[0-9;?>]*[A-Za-z]", "", shown)


def test_sleep_wake_and_fork_keep_the_agent_as_it_runs_and_its_home(presets_alice, create):
    shown = create(template="codex")
    path = f"/v1/sandboxes/{shown['id']}"
    agent = start_codex(presets_alice, shown["id"])
    presets_alice.post(f"{path}/hibernate").raise_for_status()
    woken = presets_alice.post(f"{path}/wake").raise_for_status().json()
    fork = presets_alice.post(f"{path}/fork").json()["id"]
    try:
        copy = presets_alice.wait_for(fork, "running")
        for one in (woken, copy):
            assert one["templateStatus"] == "ready" and one["template"] == "codex"
            assert "nowhere.test" in shell(presets_alice, one["id"],
                                           "cat /home/user/.codex/config.toml")
            assert shell(presets_alice, one["id"], "pgrep -x codex") == agent
            shell(presets_alice, one["id"], f"printf hello-{one['id']} > /home/user/keys")
            until(lambda: f"hello-{one['id']}" in screen(presets_alice, one["id"]), 60)
    finally:
        presets_alice.delete(f"/v1/sandboxes/{fork}")


@pytest.fixture
def broken_image(vm_stack):
    """The presets image with pi's program cut in half is the one that new sandboxes stand on."""
    images = vm_stack.settings.image_dir / "images"
    good = os.readlink(images / "presets")
    bad = f"{good}-cut"
    shutil.rmtree(images / bad, ignore_errors=True)
    (images / bad).mkdir(mode=0o700)
    for entry in (images / good).iterdir():
        if entry.name == "rootfs.raw":
            subprocess.run(["cp", "--sparse=always", "--reflink=auto", entry, images / bad],
                           check=True)
        elif entry.name != "image.json":
            os.link(entry, images / bad / entry.name)
    facts = json.loads((images / good / "image.json").read_text())
    (images / bad / "image.json").write_text(json.dumps(facts | {"key": bad}))
    cut_in_half(images / bad / "rootfs.raw", "pi")
    # A worker of another stack that starts meanwhile would make the good one current again.
    with only_builder(vm_stack.settings.image_dir / LOCK, "test of a broken image"):
        point(images / "presets", bad)
        yield
        point(images / "presets", good)
    shutil.rmtree(images / bad)


def cut_in_half(rootfs, slug):
    """Cut the file that the preset's program is, in the file system of an image."""
    def ask(*words):
        return subprocess.run(["debugfs", "-w", "-R", " ".join(words), rootfs], check=True,
                              capture_output=True, text=True).stdout

    record = json.loads(ask("cat", "/opt/svc/presets/presets.json"))["presets"][slug]
    (program,) = record["bins"].values()
    path = f"/opt/svc/presets/{program}"
    described = ask("stat", path)
    if "Type: symlink" in described:
        target = described.split('Fast link dest: "')[1].split('"')[0]
        path = os.path.normpath(os.path.join(os.path.dirname(path), target))
        described = ask("stat", path)
    size = int(described.split("Size: ")[1].split()[0])
    ask("set_inode_field", path, "size", str(size // 2))


def test_a_truncated_agent_is_found_and_its_sandbox_kept(presets_alice, create, broken_image):
    shown = create(template="pi")
    assert (shown["status"], shown["templateStatus"]) == ("running", "failed"), shown
    assert shown["bootstrapError"] == install_log(presets_alice, shown)[-1]
    assert "pi --version" in shown["bootstrapError"]
    assert shell(presets_alice, shown["id"], "echo here") == "here"
