"""A supervisord that runs is told of another configuration: only what differs is touched, and what
was broken off on the way is put right by doing it again."""
import contextlib

import pytest

from bin.console import Advice
from bin.stack import servers
from bin.stack.site import Site
from bin.stack.supervision import supervise
from bin.stack.supervision.supervise import Supervisor, procfile
from tests.stack.waiting import becomes, is_alive

SLEEP = "exec sleep 1000"


@pytest.fixture
def site(tmp_path):
    """Nothing of it is a stack's, which would have a share of the host."""
    tmp_path.chmod(0o755)
    made = Site.existing(tmp_path)
    yield made
    Supervisor(made, {}).shutdown()


@pytest.fixture
def pid_of(site):
    """Two programs that run, `same` and `old`; gives what tells the pid of one."""
    running = Supervisor(site, {"same": SLEEP, "old": SLEEP})
    running.launch()
    running.start("same", "old")
    becomes(lambda: (running.state("same"), running.state("old")), ("RUNNING", "RUNNING"))
    return running.pid


def with_another_program(site, monkeypatch):
    """`old` has gone and `new` has come."""
    return Supervisor(site, {"same": SLEEP, "new": SLEEP})


def with_a_changed_program(site, monkeypatch):
    """`old` has other options."""
    configuration = supervise.configuration

    def changed(site, names):
        before, name, after = configuration(site, names).partition("[program:old]")
        return before + name + after.replace("stopwaitsecs=25", "stopwaitsecs=24")

    monkeypatch.setattr(supervise, "configuration", changed)
    return Supervisor(site, {"same": SLEEP, "old": SLEEP})


@pytest.mark.parametrize(("other", "broken_off_in"), [
    (with_another_program, "reloadConfig"), (with_another_program, "addProcessGroup"),
    (with_a_changed_program, "removeProcessGroup"), (with_a_changed_program, "addProcessGroup")])
def test_what_was_broken_off_is_done_by_the_next_launch(
        site, pid_of, monkeypatch, other, broken_off_in):
    made, call, before = other(site, monkeypatch), Supervisor._call, pid_of("same")

    def broken_off(self, method, *arguments, **options):
        if method == broken_off_in:
            raise KeyboardInterrupt
        return call(self, method, *arguments, **options)

    with monkeypatch.context() as patched, contextlib.suppress(KeyboardInterrupt):
        patched.setattr(Supervisor, "_call", broken_off)
        made.launch()
        pytest.fail("it was not broken off")
    made.launch()
    made.start(*made.programs)
    assert all(made.pid(name) for name in made.programs) and pid_of("same") == before
    assert made._call("reloadConfig") == [[[], [], []]]
    assert bool(pid_of("old")) is ("old" in made.programs)


def test_a_launch_that_changes_nothing_stops_nothing(site, pid_of):
    before = pid_of("same"), pid_of("old")
    Supervisor(site, {"same": SLEEP, "old": SLEEP}).launch()
    assert (pid_of("same"), pid_of("old")) == before


def test_the_programs_of_a_stack_are_the_same_when_they_are_read_again(site):
    """Else each `make up` would restart a stack that runs."""
    made = Supervisor(site, {**servers.commands(site), **procfile()})
    made.launch()
    assert made._call("reloadConfig") == [[[], [], []]]


def test_one_whose_end_was_not_waited_for_has_ended_before_the_next_begins(site, monkeypatch):
    """As after a `make down` that was broken off."""
    configuration = supervise.configuration
    monkeypatch.setattr(supervise, "configuration", lambda *of: configuration(*of).replace(
        "stopwaitsecs=25", "stopwaitsecs=2"))
    made = Supervisor(site, {"deaf": "trap '' TERM; echo deaf; exec sleep 1000"})
    made.launch()
    made.start("deaf")
    becomes(lambda: made.tail("deaf"), "deaf")
    before = made._call("getPID"), made.pid("deaf")
    made._call("shutdown")
    assert not made.running() and is_alive(before[1])
    made.launch()
    assert made.running() and not any(map(is_alive, before))


def test_only_what_stays_is_not_restless(site, pid_of):
    made = Supervisor(site, {"same": SLEEP, "old": SLEEP, "loops": "exec false",
                             "loops-later": "exec sleep 1.2"})
    made.launch()
    made.start(*made.programs)
    becomes(lambda: made.state("loops-later"), "RUNNING")
    assert made.list_restless(["same", "loops-later"]) == ["loops-later"]
    assert made.list_restless(["same", "loops"]) == ["loops"]
    made.kill("old")
    becomes(lambda: made.list_restless(["same", "old"]), [])


def test_what_cannot_be_stopped_is_said_in_a_sentence(site, pid_of, monkeypatch):
    monkeypatch.setattr(Supervisor, "stop", lambda self, *names: None)
    with pytest.raises(Advice, match="STILL_RUNNING: old"):
        with_another_program(site, monkeypatch).launch()
