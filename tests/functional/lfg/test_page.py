"""The page of lfg in a real Chromium, before a real server of this machine."""
import shutil

import pytest

from tests.browser.chromium import PROGRAM, Chromium
from tests.host.javascript import bun, lfg_packages
from tests.host.lfg_page import Page
from tests.host.lfg_server import APP, LfgServer

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium")
PROGRAMS = {
    "claude": 'echo "claude is here"; read -r line; echo "you said $line"; exit 3',
    # Asks the terminal what it is; whatever it answers is shown.
    "pi": r"stty -echo; printf 'begin\e[c\e[6n\e]11;?\a'; exec cat -v",
}


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    """lfg as it is in an image."""
    if not bun():
        pytest.skip("Bun is taken out of the guest image, and there is none yet")
    home = tmp_path_factory.mktemp("image")
    (home / "node_modules").symlink_to(lfg_packages())
    shutil.copytree(APP, home / "app")
    return home / "app"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    opened = Chromium(tmp_path_factory.mktemp("home"), None)
    yield opened
    opened.close()


@pytest.fixture
def lfg(tmp_path, app):
    server = LfgServer(tmp_path, PROGRAMS, app=app)
    yield server
    server.close()


@pytest.fixture
def page(browser, lfg):
    opened = Page(browser, lfg.origin)
    yield opened
    assert opened.problems() == []
    browser.open("about:blank")


def test_a_terminal_is_typed_into_and_follows_the_window(page):
    page.shows("What shall work on project?")
    page.press("#choices button", "shell")
    page.type("echo typed $((6 * 7)); stty size")
    page.shows("typed 42")
    page.shows(page.size())
    before = page.size()
    page.resize(700, 500)
    page.until(lambda: page.size() != before)
    page.type("stty size; tput cols")
    page.shows(page.size())
    assert page.run("document.title") == "shell · project · lfg"
    assert page.tab("shell") == "shell, running" and page.tab("claude") == "claude, not started"
    page.resize(900, 600)


def test_an_agent_that_ends_can_be_started_again(page):
    page.press("#choices button", "claude")
    page.shows("claude is here")
    page.type("hello")
    page.shows("you said hello")
    page.shows("claude ended with code 3.")
    assert page.tab("claude") == "claude, ended"
    page.press(".strip button", "Start again")
    page.until(lambda: page.tab("claude") == "claude, running")
    page.press("[role=tab]", "codex")
    page.shows("codex is not installed in this sandbox.")


def test_keys_show_terminals_files_and_themselves(page):
    page.key("5", "Digit5")
    page.until(lambda: page.tab("shell") == "shell, running")
    page.key("PageUp", "PageUp")
    page.shows("claude is here")
    page.key("F", "KeyF")
    page.shows("Files")
    page.until(lambda: page.run("!find('tree').hidden"))
    page.key("F", "KeyF")
    page.until(lambda: page.run("find('side').hidden"))
    page.key("?", "Slash")
    page.shows("copy what is selected")
    page.press("#help button", "Close")
    page.press("[role=tab]", "shell")
    page.type("echo still $((40 + 2))")
    page.shows("still 42")


def test_a_page_that_says_connected_follows_keys(page):
    page.slow_down("tabs")
    page.reload()
    page.key("5", "Digit5")
    page.until(lambda: page.tab("shell") == "shell, running")


def test_what_programs_asked_before_is_not_answered_again(page):
    page.press("#choices button", "pi")
    page.shows("begin")
    page.type("")
    page.shows("^[[?1;2c")
    page.shows("rgb:")
    page.reload()
    page.shows("begin")
    page.type("after the replay")
    page.shows("after the replay")
    text = page.run("document.querySelector('.xterm-rows').innerText")
    assert text.count("?1;2c") == 1 and text.count("rgb:") == 1, text


def test_further_tabs_come_and_go(page):
    page.press("#choices button", "shell")
    page.press("#more", "+")
    page.press("#programs button", "shell")
    page.until(lambda: page.tab("shell-2") == "shell 2, running")
    page.type("echo second $((40 + 2))")
    page.shows("second 42")
    page.press(".close", "×")
    page.until(lambda: page.run("!document.getElementById('tab-shell-2')"))
    page.type("echo first $((40 + 2))")
    page.shows("first 42")


def test_files_are_shown_as_they_are(page, lfg):
    (lfg.project / "src").mkdir()
    (lfg.project / "src/<img src=x onerror=alert(1)>").write_text("<b>bold</b>\n<script>\n")
    (lfg.project / "data").write_bytes(bytes(5000))
    page.press("#files-button", "Files")
    page.press("[role=treeitem]", "src")
    page.press("[role=treeitem]", "<img src=x onerror=alert(1)>")
    page.shows("<b>bold</b>")
    page.press("[role=treeitem]", "data")
    page.shows("This is a binary file of 4.9 KiB.")
    page.press("#side-close", "×")


def test_changes_come_when_a_program_makes_them(page, lfg):
    page.press("#choices button", "shell")
    page.press("#changes-button", "Changes")
    page.shows("There is no git repository here")
    page.press("#changes button", "git init")
    page.shows("Nothing changed since the last commit.")
    page.focus_terminal()
    page.type("printf 'one\\ntwo\\n' > made-by-an-agent")
    page.shows("made-by-an-agent")
    page.press(".change", "N")
    page.until(lambda: page.run("document.querySelector('.diff .plus').textContent")
               == "+one\n+two\n")
    page.focus_terminal()
    page.type("git add . && git -c user.name=a -c user.email=a@b commit -qm one && clear")
    page.shows("It is as it was at the last commit.")
    page.type("echo three >> made-by-an-agent")
    page.until(lambda: page.run("document.querySelector('.diff .plus')?.textContent")
               == "+three\n")
    page.press("#side-close", "×")


def test_a_lost_line_is_taken_up_again_only_while_somebody_is_there(page, lfg):
    page.press("#choices button", "claude")
    page.shows("claude is here")
    page.press("[role=tab]", "shell")
    page.type("echo typed $((6 * 7))")
    page.shows("typed 42")
    lfg.process.terminate()
    lfg.process.wait(30)
    page.shows("Waking the sandbox")
    lfg.serve()
    page.until(lambda: page.run("find('connection').innerText") == "connected")
    page.until(lambda: page.tab("shell") == "shell, running")
    assert page.tab("claude") == "claude, not started", "nobody looks at it any more"
    page.run("window.ahead = 61000")
    lfg.process.terminate()
    lfg.process.wait(30)
    page.shows("Asleep, or out of reach")
    lfg.serve()
    assert page.run("find('connection').innerText") == "asleep or out of reach"
    page.move()
    page.until(lambda: page.run("find('connection').innerText") == "connected")


def test_a_page_on_which_nothing_happens_lets_go(page, lfg):
    page.shows("What shall work on")
    page.run("window.ahead = 31 * 60000")
    page.shows("Asleep, or out of reach", 60)
    assert lfg.process.poll() is None
    page.move()
    page.until(lambda: page.run("find('connection').innerText") == "connected")
