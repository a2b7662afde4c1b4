"""Who a call is for: by address and secret, over forks, sleeps and stops."""
import dataclasses

import pytest

from models.database import connection, now
from models.sandboxes import Sandbox
from models.states import Plan, SandboxStatus
from models.users import User
from services.errors import Forbidden, Unavailable
from services.hosts.nodes import heartbeat
from services.llm.callers import caller_of_service, find_caller
from services.llm.sandbox_url import secret_of
from tests.rows.llm import SETTINGS, copy_of, new_owner, new_sandbox
from tests.stack.edge import NODE

pytestmark = pytest.mark.usefixtures("fresh_rows")
addresses = (f"10.201.{high}.{low}" for high in range(256) for low in range(2, 250))


@pytest.fixture(scope="module", autouse=True)
def nodes(fresh_rows):
    for name in ("n1", "n2"):
        heartbeat(dataclasses.replace(NODE, id=name))


@pytest.fixture
def owner():
    return new_owner()


@pytest.fixture
def source(owner):
    return new_sandbox(owner, next(addresses), preferred_model="mine")


def secret(sandbox):
    return secret_of(SETTINGS, sandbox.id)


def find(sandbox, shown, settings=SETTINGS):
    return find_caller(settings, sandbox.vm_ip, shown)


def refused(sandbox, shown, settings=SETTINGS):
    with pytest.raises(Forbidden, match="is not for this sandbox"):
        find(sandbox, shown, settings)
    return True


def test_a_sandbox_is_known_by_its_address_and_its_secret(source, owner):
    caller = find(source, secret(source))
    assert (caller.sandbox_id, caller.owner_id, caller.preferred_model, caller.plan,
            caller.owner_email) == (source.id, owner.id, "mine", Plan.PRO, owner.email)
    assert owner.email not in repr(caller)


def test_a_secret_from_another_address_opens_nothing(source, owner):
    neighbour = new_sandbox(owner, next(addresses))
    stranger = new_sandbox(new_owner(), next(addresses))
    for other in (neighbour, stranger):
        assert refused(other, secret(source)) and refused(source, secret(other))


@pytest.mark.parametrize("shown", ["", "x", "{id}", "{id}.", "{id}." + 32 * "0"])
def test_an_invented_secret_opens_nothing(source, shown):
    assert refused(source, shown.replace("{id}", source.id))


def test_a_secret_of_another_box_opens_nothing(source):
    other = dataclasses.replace(SETTINGS, guest_secret="another")
    assert refused(source, secret_of(other, source.id))


def test_an_address_means_a_sandbox_of_its_own_node_only(source):
    elsewhere = dataclasses.replace(SETTINGS, node_id="n2")
    with pytest.raises(Unavailable):
        find(source, secret(source), elsewhere)
    twin = new_sandbox(new_owner(), source.vm_ip, node_id="n2")
    assert find(source, secret(source)).sandbox_id == source.id
    assert find(twin, secret(twin), elsewhere).sandbox_id == twin.id
    assert refused(twin, secret(source), elsewhere)


def test_a_fork_is_billed_itself_whichever_url_its_processes_have(source):
    fork = copy_of(source, owner=new_owner(), vm_ip=next(addresses))
    grandchild = copy_of(fork, vm_ip=next(addresses))
    for shown in (source, fork, grandchild):
        assert find(grandchild, secret(shown)).sandbox_id == grandchild.id
    assert find(fork, secret(source)).owner_id == fork.owner_id != source.owner_id
    assert refused(source, secret(fork)), "a source never has the url of its fork"
    assert refused(fork, secret(grandchild))


def test_a_sibling_is_no_ancestor(source):
    one, two = (copy_of(source, vm_ip=next(addresses)) for _ in range(2))
    assert refused(one, secret(two)) and find(one, secret(source)).sandbox_id == one.id


def test_a_stopped_sandboxs_secret_is_dead_except_in_its_living_copies(source):
    fork = copy_of(source, vm_ip=next(addresses))
    gone_by = new_sandbox(new_owner(), next(addresses))
    address, shown = source.vm_ip, secret(source)
    with connection():
        Sandbox.update(status=SandboxStatus.STOPPED, vm_ip="", stopped_at=now()).where(
            Sandbox.id == source.id).execute()
    with pytest.raises(Unavailable):
        find_caller(SETTINGS, address, shown)
    assert refused(gone_by, shown)
    assert find(fork, shown).sandbox_id == fork.id


def test_a_row_that_is_not_alive_holds_no_address(owner):
    for status in (SandboxStatus.STOPPED, SandboxStatus.HIBERNATED):
        asleep = new_sandbox(owner, next(addresses), status)
        with pytest.raises(Unavailable) as told:
            find(asleep, secret(asleep))
        assert told.value.retry_after_s == 1
    booting = new_sandbox(owner, next(addresses), SandboxStatus.PROVISIONING)
    assert find(booting, secret(booting)).sandbox_id == booting.id


def test_no_address_is_nobodys(owner):
    asleep = new_sandbox(owner, "", SandboxStatus.PROVISIONING)
    with pytest.raises(Unavailable):
        find_caller(SETTINGS, "", secret(asleep))


def test_two_rows_with_one_address_are_nobody(source, owner):
    new_sandbox(owner, source.vm_ip)
    assert refused(source, secret(source))


def test_a_disabled_account_calls_nobody(source, owner):
    with connection():
        User.update(disabled_at=now()).where(User.id == owner.id).execute()
    assert refused(source, secret(source))


def test_a_service_is_the_account_it_acts_for_or_itself(owner):
    assert caller_of_service("svc:worker", owner).owner_id == owner.id
    alone = caller_of_service("svc:worker", None)
    assert alone.owner_id == "svc:worker" and alone.sandbox_id is None
