"""Sessions end when they are ended, their secret can be changed, other sites cannot use them,
guessing is slow."""
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from app.identity.sessions import COOKIE
from models.database import connection, now
from models.users import LoginThrottle, Session
from services.accounts import sessions, sign_in_throttle, users
from services.accounts.sign_in_throttle import ACCOUNT_TRIES, ADDRESS_TRIES, PAIR_TRIES, WINDOW
from services.errors import RateLimited, Unauthenticated
from services.protocols import Deps
from tasks import control
from tasks.wiring import no_guest
from tests.fakes.outside import ListQueue
from tests.stack.edge import host, wrong

APP = {"appId": "dashboard"}
pytestmark = pytest.mark.usefixtures("clean_slate")


def credentials(edge, name="alice"):
    return {
        "email": edge.people[f"SVC_{name.upper()}_EMAIL"],
        "password": edge.people[f"SVC_{name.upper()}_PASSWORD"]
    }


def signed_in(edge, client=None, **options):
    client = client or edge.identity.application.test_client()
    assert client.post("/login", json=credentials(edge), **options).status_code == 200
    return client


def copy_of(edge, browser, name=COOKIE):
    other = edge.identity.application.test_client()
    other.set_cookie(name, browser.get_cookie(name).value)
    return other


def token(client):
    return client.post("/token", json=APP).status_code


def test_signing_out_ends_the_session_wherever_its_cookie_is(edge):
    browser = signed_in(edge)
    thief, bystander = copy_of(edge, browser), signed_in(edge)
    assert [token(client) for client in (browser, thief, bystander)] == [200, 200, 200]
    assert browser.post("/logout").status_code == 204
    assert [token(client) for client in (browser, thief, bystander)] == [401, 401, 200]


def test_signing_in_again_ends_the_browsers_old_session(edge):
    browser = signed_in(edge)
    old = copy_of(edge, browser)
    signed_in(edge, browser)
    assert (token(old), token(browser)) == (401, 200)


@pytest.fixture
def sweep(edge, monkeypatch):
    """The job that forgets what is past its time."""
    monkeypatch.setattr(control, "get_deps", lambda: Deps(edge.settings, ListQueue(), no_guest))
    return control.expiry_sweep


def test_a_session_ends_by_itself_and_its_row_is_swept(edge, sweep):
    browser, begun = signed_in(edge), now()
    other = signed_in(edge)
    with connection():
        Session.update(expires_at=now()).where(Session.created_at < begun).execute()
    assert token(browser) == 401
    sweep()
    with connection():
        assert Session.select().where(Session.expires_at <= now()).count() == 0
    assert token(other) == 200


def test_a_step_of_the_job_that_fails_keeps_none_of_the_others_from_their_work(
        edge, sweep, monkeypatch, caplog):
    def fail():
        raise KeyError("broken")

    monkeypatch.setattr(control.idempotency, "forget_expired", fail)
    signed_in(edge)
    with connection():
        Session.update(expires_at=now()).execute()
    sweep()
    with connection():
        assert Session.select().count() == 0
    assert "the sweep goes on" in caplog.text


def test_an_operator_ends_all_sessions_of_an_account(edge):
    first, second = signed_in(edge), signed_in(edge)
    assert sessions.end_all(edge.user("alice")) >= 2
    assert [token(first), token(second)] == [401, 401]


def test_a_disabled_account_has_no_sessions(edge):
    user = users.create("gone@example.test", "some password", users.Plan.FREE)
    session_id = sessions.start(user)
    users.set_disabled(user, disabled=True)
    with pytest.raises(Unauthenticated):
        sessions.get_user(session_id)
    users.set_disabled(user, disabled=False)
    with pytest.raises(Unauthenticated):
        sessions.get_user(session_id)


def test_a_session_begun_with_the_old_password_while_it_is_changed_is_none(edge):
    user = users.create("racing@example.test", "the old password", users.Plan.FREE)
    verified = users.sign_in("racing@example.test", "the old password")
    users.set_password(user, "the new password")
    with pytest.raises(Unauthenticated):
        sessions.get_user(sessions.start(verified))


def test_an_account_has_so_many_sessions_and_a_new_one_ends_the_oldest(monkeypatch, edge):
    monkeypatch.setattr(sessions, "SESSIONS_MAX", 3)
    user = users.create("often@example.test", "some password", users.Plan.FREE)
    first, *others = (sessions.start(user) for _ in range(4))
    with pytest.raises(Unauthenticated):
        sessions.get_user(first)
    assert {sessions.get_user(one).id for one in others} == {user.id}
    assert sessions.get_user(sessions.start(edge.user("alice"))).id == edge.user("alice").id


def test_the_rows_alone_open_nothing(edge):
    browser = signed_in(edge)
    with connection():
        stored = repr(list(Session.select().dicts()))
    value = browser.get_cookie(COOKIE).value
    assert value not in stored and value.split(".")[0].strip('"') not in stored
    session_id = sessions.start(edge.user("alice"))
    with connection():
        assert session_id not in repr(list(Session.select().dicts()))


def test_the_secret_changes_without_signing_anybody_out(edge):
    old, both, new = (host(edge, session_secret=secret) for secret in ("old", "new,old", "new"))
    value = signed_in(edge, old).get_cookie(COOKIE).value
    for client, wanted in ((old, 200), (both, 200), (new, 401)):
        client.set_cookie(COOKIE, value)
        assert token(client) == wanted
    fresh = signed_in(edge, host(edge, session_secret="new,old")).get_cookie(COOKIE).value
    for client, wanted in ((new, 200), (both, 200), (old, 401)):
        client.set_cookie(COOKIE, fresh)
        assert token(client) == wanted, "the newest secret signs"


@pytest.mark.parametrize("origin", [
    "https://evil.example.test", "null", "http://127.0.0.1:1", "nonsense", "http://[",
    "http://127.0.0.1.evil.example.test:18081"
])
@pytest.mark.parametrize("path", ["/login", "/token", "/logout"])
def test_pages_of_other_sites_are_refused(edge, path, origin):
    browser = signed_in(edge)
    body = credentials(edge) if path == "/login" else APP if path == "/token" else None
    answer = browser.post(path, json=body, headers={"Origin": origin})
    assert answer.status_code == 403 and COOKIE not in answer.headers.get("Set-Cookie", "")
    assert token(browser) == 200, "and the session lives on"


def test_our_own_pages_and_those_allowed_are_taken(edge):
    allowing = host(edge, browser_origins=("https://dashboard.example.test",))
    for origin in (edge.settings.auth_url, "https://dashboard.example.test",
                   "https://DASHBOARD.example.test:443"):
        signed_in(edge, allowing, headers={"Origin": origin})
        assert allowing.post("/token", json=APP, headers={"Origin": origin}).status_code == 200
    assert allowing.get("/.well-known/jwks.json",
                        headers={"Origin": "https://evil.example.test"}).status_code == 200
    careless = host(edge, browser_origins=("dashboard.example.test",))
    assert careless.post("/login", json=credentials(edge),
                         headers={"Origin": "null"}).status_code == 403


def test_a_form_or_plain_text_cannot_use_the_session(edge):
    browser = signed_in(edge)
    for options in ({"data": {"appId": "x"}}, {
            "data": '{"appId": "x"}', "content_type": "text/plain"
    }):
        assert browser.post("/token", **options).status_code == 415


def test_over_tls_the_cookie_is_bound_to_the_host(edge):
    secure = host(edge, auth_url="https://auth.example.test")
    answer = secure.post("/login", json=credentials(edge), base_url="https://auth.example.test")
    cookie = answer.headers["Set-Cookie"]
    assert cookie.startswith(f"__Host-{COOKIE}=") and "Secure" in cookie and "Path=/" in cookie
    assert "Domain" not in cookie
    assert secure.post("/token", json=APP, base_url="https://auth.example.test").status_code == 200


def test_one_account_is_guarded_against_many_addresses(edge):
    for number in range(ACCOUNT_TRIES):
        sign_in_throttle.pay("target@example.test", f"198.51.100.{number}")
    with pytest.raises(RateLimited):
        sign_in_throttle.pay("target@example.test", "203.0.113.9")
    sign_in_throttle.pay("somebody-else@example.test", "203.0.113.9")


@pytest.mark.parametrize("addresses", [
    ["192.0.2.7"], ["2001:db8:1:2::1", "2001:db8:1:2:ffff::9"], ["192.0.2.8", "::ffff:192.0.2.8"]])
def test_one_address_is_held_back_whatever_accounts_it_tries(edge, addresses):
    for number in range(ADDRESS_TRIES):
        sign_in_throttle.pay(f"n{number}@example.test", addresses[number % len(addresses)])
    for address in addresses:
        with pytest.raises(RateLimited):
            sign_in_throttle.pay("one-more@example.test", address)
    sign_in_throttle.pay("one-more@example.test", "2001:db8:1:3::1")


def test_a_refused_try_costs_nothing_elsewhere(edge):
    for _ in range(PAIR_TRIES):
        sign_in_throttle.pay("pair@example.test", "192.0.2.20")
    for _ in range(ADDRESS_TRIES):
        with pytest.raises(RateLimited):
            sign_in_throttle.pay("pair@example.test", "192.0.2.20")
    sign_in_throttle.pay("other@example.test", "192.0.2.20")


def test_retry_after_is_when_the_next_try_is_there(edge):
    for _ in range(PAIR_TRIES):
        sign_in_throttle.pay("waiting@example.test", "192.0.2.30")
    with pytest.raises(RateLimited) as refusal:
        sign_in_throttle.pay("waiting@example.test", "192.0.2.30")
    wait_s = refusal.value.retry_after_s
    assert 0 < wait_s <= WINDOW.total_seconds() / PAIR_TRIES
    forward(wait_s - 15)
    with pytest.raises(RateLimited):
        sign_in_throttle.pay("waiting@example.test", "192.0.2.30")
    forward(15)
    sign_in_throttle.pay("waiting@example.test", "192.0.2.30")


def forward(seconds):
    with connection():
        LoginThrottle.update(full_at=LoginThrottle.full_at - timedelta(seconds=seconds)).execute()


def test_the_right_password_costs_nothing(edge):
    client = edge.identity.application.test_client()
    for _ in range(PAIR_TRIES + 5):
        assert client.post("/login", json=credentials(edge)).status_code == 200
    for _ in range(PAIR_TRIES - 1):
        assert wrong(edge, client, credentials(edge)["email"], "127.0.0.1") == 401
    assert client.post("/login", json=credentials(edge)).status_code == 200
    assert wrong(edge, client,
                 credentials(edge)["email"], "127.0.0.1") == 401, "the slate was wiped"


def test_guesses_in_parallel_are_counted_one_by_one(edge):
    barrier = threading.Barrier(16)

    def guess(_):
        barrier.wait()
        try:
            sign_in_throttle.pay("parallel@example.test", "192.0.2.40")
        except RateLimited:
            return False
        return True

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(guess, range(16))) == PAIR_TRIES


def test_what_people_type_is_not_kept(edge):
    client = edge.identity.application.test_client()
    wrong(edge, client, "hunter2-typed-into-the-wrong-field@example.test")
    with connection():
        rows = repr(list(LoginThrottle.select().dicts()))
    assert "hunter2" not in rows and "192.0.2.1" not in rows


def test_allowances_that_are_whole_are_swept_although_nobody_signs_in(edge, sweep, monkeypatch):
    monkeypatch.setattr(sign_in_throttle, "_BATCH", 2)
    for number in range(3):
        assert wrong(edge, edge.identity, f"nobody-{number}@example.test", "192.0.2.70") == 401
    forward(2 * WINDOW.total_seconds())
    sign_in_throttle.pay("guessed@example.test", "192.0.2.71")
    sweep()
    with connection():
        assert LoginThrottle.select().where(LoginThrottle.full_at < now() - WINDOW).count() == 0
        assert LoginThrottle.select().count() == 3, "those of the guess a moment ago"
