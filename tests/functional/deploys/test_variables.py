"""Variables of an app in rows: set, shown, counted and removed; of a secret nothing comes back."""
import concurrent.futures
import dataclasses

import pytest

from models.database import connection
from models.deploys import AppVariable
from models.users import User
from services.deploys import app_removal, masked_secrets, variables
from services.errors import Conflict, Forbidden, InvalidRequest, NotFound, Unavailable
from tests.functional.deploys.conftest import app


@pytest.fixture
def alice(deps, ask):
    """The owner of the app hello."""
    ask()
    with connection():
        return User.get_by_id("alice")


@pytest.fixture
def put(deps, alice):
    def one(name="KEY", value="hunter2", *, secret=True, owner=alice, slug="hello"):
        return variables.put(deps, owner, slug, name, value, secret=secret)
    return one


def shown(deps, owner):
    return [(each.name, each.secret, each.value) for each in variables.list_all(
        deps, owner, "hello")]


def test_a_secret_reaches_the_process_and_nobody_else(deps, alice, put):
    app_id = app()["app_id"]
    assert put().value is None
    assert put("MODE", "fast\nand slow", secret=False).value == "fast\nand slow"
    assert shown(deps, alice) == [("KEY", True, None), ("MODE", False, "fast\nand slow")]
    assert variables.get_for_run(deps.settings, app_id) == {
        "KEY": "hunter2", "MODE": "fast\nand slow"}
    assert variables.get_for_build(deps.settings, app_id) == {"MODE": "fast\nand slow"}
    with connection():
        assert all(b"hunter2" not in bytes(row.sealed) for row in AppVariable.select())
    elsewhere = dataclasses.replace(deps.settings, variables_secret="of another")
    with pytest.raises(Unavailable):
        variables.get_for_run(elsewhere, app_id)


def test_what_no_secret_opens_any_more_is_shown_without_its_value(deps, alice, put):
    put("LOST", "then", secret=False)
    changed = dataclasses.replace(
        deps, settings=dataclasses.replace(deps.settings, variables_secret="another"))
    variables.put(changed, alice, "hello", "MODE", "now", secret=False)
    assert shown(changed, alice) == [("LOST", False, None), ("MODE", False, "now")]


def test_the_last_value_counts_and_a_secret_may_cease_to_be_one(deps, alice, put):
    put()
    put(value="open", secret=False)
    assert shown(deps, alice) == [("KEY", False, "open")]
    assert variables.remove(alice, "hello", "KEY").value is None
    assert shown(deps, alice) == []
    with pytest.raises(NotFound):
        variables.remove(alice, "hello", "KEY")


@pytest.mark.parametrize("name", ["PORT", "SVC_AI_URL", "1ST", "", "A-B", "A=B", "A B", "\u00c4",
                                  "A\n", "A" * 129])
def test_names_that_are_none_or_ours_are_refused(deps, alice, put, name):
    with pytest.raises(InvalidRequest) as refused:
        put(name)
    assert "hunter2" not in str(refused.value) and shown(deps, alice) == []


def test_size_and_number_have_a_most(put, monkeypatch):
    put(value="x" * variables.VALUE_BYTES_MOST)
    with pytest.raises(InvalidRequest):
        put(value="\u00fc" * (variables.VALUE_BYTES_MOST // 2 + 1))
    monkeypatch.setattr(variables, "NUMBER_MOST", 5)

    def attempt(number):
        try:
            return put(f"KEY_{number}").name
        except Conflict:
            return None

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = [name for name in pool.map(attempt, range(16)) if name]
    assert len(found) == 4
    assert put(found[0]).name == found[0], "one that is there may be changed"


def test_together_they_have_a_most(put, monkeypatch):
    monkeypatch.setattr(variables, "SEALED_BYTES_MOST", 300)
    put("ONE", "x" * 200)
    with pytest.raises(Conflict, match="more than 300 bytes"):
        put("TWO", "x" * 100)
    put("ONE", "x" * 250)


def test_secrets_are_masked_in_what_an_app_has_said(deps, put):
    put("PART", "hunter")
    put("SHORT", "e")
    put("MODE", "fast and slow", secret=False)
    put()
    secrets = masked_secrets.get(deps.settings, app()["app_id"])
    assert secrets.masked_end(b"hunter2 hunters, fast and slow", 99) == "*** ***s, fast and slow"


def test_they_are_their_owners_and_go_with_the_app(deps, alice, put):
    put()
    with connection():
        mallory = User.get_by_id("mallory")
    for refused in (lambda: put(owner=mallory), lambda: shown(deps, mallory),
                    lambda: variables.remove(mallory, "hello", "KEY")):
        with pytest.raises(Forbidden):
            refused()
    with pytest.raises(NotFound):
        put(slug="none")
    app_removal.remove(deps, alice, "hello")
    with connection():
        assert not AppVariable.select().exists()
