"""The preset lfg in a real sandbox, through its preview, in a real browser: `codex` works there by
a model of the tests, is put to sleep, woken by the browser, and on it goes. Its server comes back
after a crash, and after a power off."""
import pytest

from bin.stack.site import ROOT
from config import guest_gateway
from services.llm.sandbox_url import secret_of
from tests.browser.chromium import PROGRAM
from tests.clients.agents import codex_at_work
from tests.clients.guest_gateway import config_of, running_gateway
from tests.fakes.working_model import WorkingModel
from tests.host.lfg_page import Page
from tests.stack.previews import Preview
from tests.stack.waiting import eventually

pytestmark = pytest.mark.vm
PICTURES = ROOT / "var" / "pictures"
PROJECT = {
    ".gitignore": ".*\n!.gitignore\n__pycache__/\n",
    "README.md": "# Greetings\n\nA library that greets.\n",
    "greet.py": '"""Greetings."""\n\n\ndef greet():\n    return "Hello!"\n',
}
WORK = '''cat > greet.py <<'end'
"""Greetings."""


def greet(name="you"):
    """A greeting for whoever it is."""
    return f"Hello, {name}!"
end
cat > test_greet.py <<'end'
from greet import greet

assert greet() == "Hello, you!"
assert greet("Ada") == "Hello, Ada!"
end'''
TURNS = [
    ("I will give greet() a name, and write a test of it.", WORK),
    ("Now I run the test.", "python3 test_greet.py && echo passed"),
    ("greet() takes a name now, and its test passes.", None),
]


@pytest.fixture(scope="module")
def model(vm_stack, tmp_path_factory):
    """Behind the gateway of the stack."""
    made = WorkingModel()
    with running_gateway(vm_stack, config_of(made, made), tmp_path_factory.mktemp("gateway")):
        yield made
    made.close()


@pytest.fixture(scope="module")
def preview(vm_stack, presets_alice, model):
    made = presets_alice.post("/v1/sandboxes", json={"size": "small", "template": "lfg"}).json()
    assert (made["templateStatus"], made["servePort"]) == ("ready", 8766), made
    sandbox = made["id"]
    url = f"{guest_gateway.URL}/s/{secret_of(vm_stack.settings, sandbox)}"
    presets_alice.write(sandbox, PROJECT | codex_at_work(url))
    done = presets_alice.exec(
        sandbox, "sh", "-c",
        "chown -R user:user /home/user && su user -c 'cd && git init -q -b main && git add . &&"
        " git -c user.name=Ada -c user.email=ada@example.test commit -qm Greetings'")
    assert done["exitCode"] == 0, done
    yield Preview(vm_stack, presets_alice, sandbox, made["servePort"])
    presets_alice.delete(f"/v1/sandboxes/{sandbox}")


def ask(page, text):
    """Give codex a task. What comes at once it takes for pasted, the Enter too."""
    page.write(text)
    page.shows(f"› {text}")
    page.type("")


@pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium")
def test_an_agent_is_driven_sleeps_and_goes_on(browser, preview, model):
    page = Page(browser, preview.url)
    page.resize(1280, 720)
    page.press("#choices button", "codex")
    page.shows("Ask Codex to do anything", 90)
    page.shows("one default · ~", 90)
    model.turns.extend(TURNS)
    ask(page, "Greet people by their name, with a test")
    page.shows(TURNS[-1][0], 60)
    page.press("#changes-button", "Changes")
    page.press(".change", "N")
    page.press(".change", "M")
    page.until(lambda: page.run("find('content-body').innerText").startswith("diff"))
    PICTURES.mkdir(parents=True, exist_ok=True)
    browser.picture(PICTURES / "lfg.png")
    agents = running(preview, "codex")
    page.press("[role=tab]", "shell")
    page.type("nonce=$RANDOM$RANDOM; echo $nonce > /dev/shm/nonce; clear")
    page.until(lambda: read(preview, "/dev/shm/nonce"))
    nonce = read(preview, "/dev/shm/nonce")
    page.run("window.ahead = 61000")
    preview.sleep()
    page.shows("Asleep, or out of reach")
    assert preview.status() == "hibernated", "a page that nobody uses woke it"
    page.move()
    page.until(lambda: page.run("find('connection').innerText") == "connected", 120)
    # its connection goes on as soon as its guest does, which is before that is written down
    assert eventually(lambda: preview.status() == "running", 30)
    page.focus_terminal()
    page.type("echo again $nonce $((6 * 7))")
    page.shows(f"again {nonce} 42")
    page.resize(900, 600)
    page.until(lambda: int(page.size().split()[1]) < 80)
    page.type("clear; stty size; id -un")
    page.shows(page.size())
    page.shows("user")
    page.press("[role=tab]", "codex")
    model.turns.append(("Still here.", None))
    ask(page, "Are you there?")
    page.shows("Still here.", 60)
    assert running(preview, "codex") == agents != []
    assert page.problems() == []
    browser.open("about:blank")  # a page that stays would wake the sandbox in the tests below


def test_a_server_that_crashes_is_started_again_and_one_that_is_told_to_end_is_not(preview):
    words = "-u", "user", "-f", "lfg/app/server/main.ts"
    first = running(preview, *words)
    execute(preview, "pkill", "-KILL", *words)
    assert eventually(lambda: preview.get("/").status_code == 200, 60)
    second = running(preview, *words)
    assert len(first) == len(second) == 1 and first != second
    execute(preview, "pkill", "-TERM", *words)
    assert eventually(lambda: not running(preview, "-f", words[-1]), 30)
    assert "ended with 137 and starts again" in read(preview, "/var/log/svc/lfg.log")


def test_it_has_all_four_and_serves_its_page_also_after_a_power_off(preview):
    for slug in ("opencode", "pi", "codex", "claude"):
        assert execute(preview, "readlink", f"/usr/local/bin/{slug}")["exitCode"] == 0, slug
    execute(preview, "sync")
    path = f"/v1/sandboxes/{preview.sandbox_id}"
    preview.owner.post(f"{path}/exec", json={"cmd": "poweroff -f", "detached": True})
    preview.owner.wait_for(preview.sandbox_id, "hibernated")
    woken = preview.owner.post(f"{path}/wake").json()
    assert woken["status"] == "running" and "error" not in woken, woken
    assert preview.get("/").status_code == 200


def execute(preview, *words):
    return preview.owner.exec(preview.sandbox_id, *words)


def running(preview, *words):
    """Ids of the processes that `pgrep` finds."""
    return execute(preview, "pgrep", *words)["stdout"].split()


def read(preview, path):
    return execute(preview, "cat", path)["stdout"].strip()
