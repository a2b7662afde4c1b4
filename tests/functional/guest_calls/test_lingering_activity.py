"""Calls that follow each other closely use one activity and one guest, which are ended behind
them."""
import time
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from types import SimpleNamespace

import httpx
import pytest

from bin.stack import free_ports, health
from models.database import connection, now
from models.sandboxes import Activity, Sandbox
from models.states import SandboxKind
from models.users import User
from services.errors import Conflict
from services.guest_calls import lingering_activity
from services.guest_calls.guest import get_owned
from services.guest_calls.lingering_activity import LINGER_S, end_lingering, in_use_lingering
from services.guest_calls.use_while_running import forget_expired
from services.sandboxes import lifecycle
from services.sandboxes.caller import Caller
from tests.stack.database import query
from tests.stack.processes import Process
from tests.stack.waiting import until

SANDBOXES = "/v1/sandboxes"


@pytest.fixture
def kept(monkeypatch):
    """What lingers is ended by the test alone, however slow the host is."""
    monkeypatch.setattr(lingering_activity, "end_lingering", lambda _: None)


@pytest.fixture
def sandbox(running_id):
    yield running_id
    end_lingering()
    assert activities(running_id) == []


def row(sandbox):
    with connection():
        return Sandbox.get_by_id(sandbox)


def activities(sandbox):
    with connection():
        return [each.id for each in Activity.select().where(Activity.sandbox_id == sandbox)]


class Guest:
    """Stands for the client of a guest, which may have kept a connection."""

    def __init__(self, *address):
        self.address = address
        self.closed = False

    def close(self):
        self.closed = True


DEPS = SimpleNamespace(connect_guest=Guest)


@contextmanager
def under_way(sandbox, *, for_s=30):
    """A call that has just read the sandbox's row; gives the guest that it has."""
    with connection():
        owner = User.get_by_id(row(sandbox).owner_id)
    found = get_owned(Caller(owner, SandboxKind.API), sandbox)
    with in_use_lingering(DEPS, found, for_s=for_s, what="exec") as guest:
        yield guest


def call(sandbox, *, for_s=30):
    """The activities while a call is under way."""
    with under_way(sandbox, for_s=for_s):
        return activities(sandbox)


def guest_of(sandbox):
    """What a call has been given."""
    with under_way(sandbox) as guest:
        return guest


def test_the_next_call_takes_it_and_writes_nothing(kept, sandbox):
    first = call(sandbox)
    before = row(sandbox).last_active_at
    assert call(sandbox) == call(sandbox) == first and row(sandbox).last_active_at == before


def test_it_is_ended_soon_as_of_the_end_of_its_last_call(sandbox):
    call(sandbox)
    time.sleep(LINGER_S / 4)
    before = now()
    call(sandbox)
    after = now()
    until(lambda: activities(sandbox) == [], 10 * LINGER_S)
    seen = row(sandbox)
    assert before <= seen.last_active_at <= after
    assert seen.idle_at == seen.last_active_at + timedelta(seconds=seen.idle_timeout_s)


def test_its_end_takes_nothing_back_that_was_written_since(sandbox):
    call(sandbox)
    time.sleep(0.01)
    with connection():
        owner = User.get_by_id(row(sandbox).owner_id)
        lifecycle.extend(Caller(owner, SandboxKind.API), sandbox, 7200)
    extended = row(sandbox)
    end_lingering()
    seen = row(sandbox)
    assert (seen.last_active_at, seen.idle_at) == (extended.last_active_at, extended.idle_at)
    assert seen.idle_at == seen.last_active_at + timedelta(seconds=7200)


def test_what_has_fallen_asleep_since_does_not_become_idle(sandbox):
    call(sandbox)
    with connection():
        Sandbox.update(status="hibernated", idle_at=None).where(Sandbox.id == sandbox).execute()
    end_lingering()
    assert row(sandbox).idle_at is None


def test_calls_at_once_have_their_own(kept, sandbox):
    call(sandbox)
    with under_way(sandbox) as guest:
        assert len(call(sandbox)) == 2 and guest_of(sandbox) is not guest


def test_one_that_the_call_could_outlast_is_not_taken(kept, sandbox):
    first = call(sandbox, for_s=30)
    assert len(call(sandbox, for_s=300)) == 2 and first == activities(sandbox)[:1]
    assert len(call(sandbox, for_s=290)) == 2


def test_it_lasts_as_long_as_the_call_that_takes_it(sandbox, monkeypatch):
    monkeypatch.setattr(lingering_activity, "_MARGIN_S", 0.5)
    call(sandbox, for_s=0.5)
    began = time.monotonic()
    with under_way(sandbox, for_s=0.5):
        while time.monotonic() - began < 0.5:
            forget_expired()
            assert activities(sandbox), "the idle sweep would see a sandbox that nobody uses"
            time.sleep(0.05)


def test_the_next_call_has_its_guest_with_the_connection(kept, sandbox):
    guest = guest_of(sandbox)
    assert guest_of(sandbox) is guest and not guest.closed
    assert guest.address[1:] == (row(sandbox).agent_port, row(sandbox).agent_token)


def test_its_connection_is_closed_soon(sandbox):
    guest = guest_of(sandbox)
    until(lambda: guest.closed, 10 * LINGER_S)


def test_few_connections_linger_after_many_calls_at_once(kept, sandbox):
    with ExitStack() as calls:
        guests = [calls.enter_context(under_way(sandbox)) for _ in range(20)]
    assert [guest.closed for guest in guests].count(False) == 16
    assert len(activities(sandbox)) == 20


def test_no_connection_outlasts_an_operation(kept, sandbox):
    """The guest may have slept since, and its network gone to somebody else."""
    guest = guest_of(sandbox)
    with connection():
        Sandbox.update(op_seq=Sandbox.op_seq + 2).where(Sandbox.id == sandbox).execute()
    other = guest_of(sandbox)
    assert guest.closed and other is not guest and guest_of(sandbox) is other


@pytest.mark.parametrize("changed", [{"status": "hibernated"}, {"task": "hibernate"}])
def test_it_gives_no_right_to_use_what_does_not_run(sandbox, changed):
    call(sandbox)
    with connection():
        Sandbox.update(changed).where(Sandbox.id == sandbox).execute()
    with pytest.raises(Conflict, match="exec needs it to be running"):
        call(sandbox)


def test_a_process_that_exits_ends_what_lingers(sim_stack, alice, tmp_path):
    made = alice.create()["id"]
    url = f"http://127.0.0.1:{free_ports.free_port(0)}"
    values = {"SVC_API_BIND": url.removeprefix("http://"), "SVC_API_WORKERS": "1"}
    with Process(sim_stack, "api", values, tmp_path / "api.log") as api:
        until(lambda: health.answers(f"{url}/health"), 60)
        answer = httpx.post(f"{url}{SANDBOXES}/{made}/exec", json={"cmd": "true"},
                            headers=alice.key_headers, timeout=60)
        assert answer.status_code == 200
        api.stop()
    assert query(sim_stack, "SELECT count(*) FROM activities WHERE sandbox_id = %s", made) == [
        (0,)]
    alice.delete(f"{SANDBOXES}/{made}")
