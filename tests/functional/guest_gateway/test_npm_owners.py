"""Whose share of the registry's fetches a guest takes, on real rows."""
import asyncio
import dataclasses

import pytest

from app.guest_gateway.npm.owners import Owners
from app.guest_gateway.rows import Rows
from models.database import DatabaseUnavailable, connection
from models.deploys import Deploy
from models.ids import new_id
from models.states import OWN_KINDS, SandboxKind
from services.errors import Forbidden, Unavailable
from services.hosts.nodes import heartbeat
from tests.rows.llm import SETTINGS, new_owner, new_sandbox
from tests.stack.edge import NODE

pytestmark = pytest.mark.usefixtures("fresh_rows")
addresses = (f"10.202.{high}.{low}" for high in range(256) for low in range(2, 250))


@pytest.fixture(scope="module", autouse=True)
def node(fresh_rows):
    heartbeat(dataclasses.replace(NODE, id="n1"))


@pytest.fixture
def app():
    """An app of somebody's."""
    with connection():
        return Deploy.create(slug=new_id(), app_id=new_id("app_"), owner_id=new_owner().id)


def find(source):
    async def run():
        return await Owners(SETTINGS, Rows()).find(source)

    return asyncio.run(run())


def test_all_sandboxes_of_an_owner_take_its_share():
    owner = new_owner()
    assert {find(new_sandbox(owner, next(addresses)).vm_ip) for _ in range(2)} == {owner.id}


@pytest.mark.parametrize("kind", OWN_KINDS)
def test_what_the_service_makes_for_an_app_takes_that_of_the_app_s_owner(kind, app):
    made = new_sandbox(new_owner(), next(addresses), kind=kind, app_id=app.app_id)
    assert find(made.vm_ip) == app.owner_id


def test_nobody_takes_another_s_by_naming_its_app(app):
    named = new_sandbox(new_owner(), next(addresses), kind=SandboxKind.APP, app_id=app.app_id)
    assert find(named.vm_ip) == named.owner_id


def test_an_address_without_a_holder_or_with_two_has_no_share():
    with pytest.raises(Unavailable):
        find(next(addresses))
    address = next(addresses)
    for _ in range(2):
        new_sandbox(new_owner(), address)
    with pytest.raises(Forbidden):
        find(address)


def test_without_the_database_it_is_told_to_come_again(monkeypatch):
    def away(*_):
        raise DatabaseUnavailable[0]("away")

    monkeypatch.setattr("app.guest_gateway.npm.owners.find_holder", away)
    with pytest.raises(Unavailable) as told:
        find(next(addresses))
    assert told.value.retry_after_s
