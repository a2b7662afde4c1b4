"""Callers with accounts of their own, and a template name that nobody used."""

import pytest

from models.ids import new_id
from models.states import Plan
from services.hosts.nodes import heartbeat
from tests.contract.templates.caller import Caller
from tests.stack.edge import NODE


@pytest.fixture
def user(edge):
    heartbeat(NODE)  # nobody else speaks for it

    def make(plan=Plan.LEGACY_PRO):
        owner = edge.newcomer(plan)
        return Caller(edge, owner, edge.key(owner))

    return make


@pytest.fixture
def alice(user):
    return user()


@pytest.fixture
def service(edge):
    return Caller(edge, None, edge.service())


@pytest.fixture
def name():
    return new_id("box")
