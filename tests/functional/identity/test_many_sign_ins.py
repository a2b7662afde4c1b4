"""Many who sign in at once: the real identity process hashes a few passwords at a time."""
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from models.ids import new_id
from services.accounts.passwords import AT_ONCE, LINE_MAX
from tests.stack.memory import growth

pytestmark = pytest.mark.slow

PEOPLE, EACH, PASSWORD = 8, 4, "correct horse battery"
HASH_BYTES = 64 * 1024 * 1024


@pytest.fixture(scope="module")
def emails(site):
    made = [f"{new_id()}@example.test" for _ in range(PEOPLE)]
    for email in made:
        site.operator(f"user-create {email} --password '{PASSWORD}'")
    return made


@pytest.fixture
def client(site):
    limits = httpx.Limits(max_connections=100)
    with httpx.Client(base_url=site.stack.auth_url, timeout=60, trust_env=False,
                      limits=limits) as client:
        yield client


def sign_in(client, email):
    return client.post("/login", json={"email": email, "password": PASSWORD})


def sign_in_at_once(client, emails, count):
    together = threading.Barrier(count)

    def one(number):
        together.wait()
        return sign_in(client, emails[number % len(emails)])

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


def test_32_at_once_take_the_memory_of_a_few(site, client, emails):
    sign_in(client, emails[0])
    grown = growth(site.stack, "identity")
    answers = sign_in_at_once(client, emails, PEOPLE * EACH)
    print(f"grew by {grown() / 2**20:.0f} MiB, "
          f"{sum(answer.status_code == 200 for answer in answers)} of 32 signed in")
    assert 0 < grown() < (AT_ONCE + 1) * HASH_BYTES
    assert {answer.status_code for answer in answers} <= {200, 503}
    assert any(answer.is_success for answer in answers)
    for answer in answers:
        assert answer.is_success or answer.headers["Retry-After"] == "5"


def test_what_is_too_much_is_503_costs_no_try_and_holds_up_nobody(client, emails):
    with ThreadPoolExecutor() as pool:
        crowd = pool.submit(sign_in_at_once, client, emails, LINE_MAX + AT_ONCE + 14)
        time.sleep(0.5)
        assert client.get("/.well-known/jwks.json").status_code == 200
        assert not crowd.done(), "it did not stand in their line"
        refused = [answer for answer in crowd.result() if answer.status_code != 200]
    assert refused and {answer.status_code for answer in refused} == {503}
    assert {answer.headers["Retry-After"] for answer in refused} == {"5"}
    assert "signing in at once" in refused[0].json()["error"]
    for email in emails:
        assert sign_in(client, email).status_code == 200


def test_who_signs_in_again_and_again_keeps_nobody_else_out(client, emails):
    ended = threading.Event()

    def again_and_again():
        while not ended.is_set():
            sign_in(client, emails[0])

    with ThreadPoolExecutor(40) as pool:
        for _ in range(40):
            pool.submit(again_and_again)
        try:
            time.sleep(1)
            assert [sign_in(client, email).status_code for email in emails[1:]] == [200] * 7
        finally:
            ended.set()
