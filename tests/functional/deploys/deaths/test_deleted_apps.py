"""An app is deleted while somebody else waits for its row."""
from concurrent.futures import ThreadPoolExecutor

from models.database import connection, database, now
from models.deploys import DeployRun
from models.users import User
from services.deploys import app_removal, failed_runs
from services.deploys.sweeps import overdue
from tests.functional.deploys.conftest import app
from tests.stack.waiting import until

WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted"


def delete_while(deps, monkeypatch, another):
    """Deletes the app, whose row is locked until `another` waits for something; returns what that
    gives."""
    with connection():
        alice, find_last, begun = User.get_by_id("alice"), app_removal.find.last_run, []

    with ThreadPoolExecutor(1) as other:
        def last_run(app_id):
            begun.append(other.submit(another))
            until(lambda: database.execute_sql(WAITING).fetchone() == (1,), 10)
            return find_last(app_id)

        monkeypatch.setattr(app_removal.find, "last_run", last_run)
        app_removal.remove(deps, alice, "hello")
        return begun[0].result()


def test_neither_waits_for_what_the_other_has_locked_when_its_run_is_given_up(
        deps, ask, monkeypatch):
    """The database would end one of them."""
    ask()
    with connection():
        DeployRun.update(deadline_at=now()).execute()
    assert delete_while(deps, monkeypatch, lambda: overdue.give_up(deps)) == []
    with connection():
        run = DeployRun.get()
    assert (run.state, run.error) == ("failed", "The app was deleted.")


def test_a_deploy_that_comes_at_that_moment_is_the_first_of_a_new_app(
        deps, ask, take, monkeypatch):
    ask()
    with connection():
        failed_runs.fail(deps, take(), "No.")
    before = app()
    view = delete_while(deps, monkeypatch, ask)
    assert (view.version, view.app_id) == (1, app()["app_id"]) and view.app_id != before["app_id"]
