"""The edge keeps the list of revoked tokens, which every consumer polls, for 10 s (contract,
Identity host endpoints)."""
import pytest

from tests.stack.operator import told_operator
from tests.stack.waiting import until
from tests.tls.clients import client

LIST, KEPT_S = "/tokens/revoked", 10


@pytest.fixture
def revoke(sim_stack):
    """Mints a service token and revokes it; returns its jti."""
    def run():
        jti = told_operator(sim_stack.env, "service-token-mint", "edge-tests").split()[1]
        told_operator(sim_stack.env, "service-token-revoke", jti)
        return jti
    return run


@pytest.mark.slow
def test_the_list_is_kept_for_ten_seconds_whatever_is_behind_it(sim_stack, revoke):
    with client(sim_stack, "auth.localhost") as http:
        known = revoke()
        until(lambda: known in http.get(LIST).json()["jtis"], KEPT_S + 10)
        first = http.get(LIST)
        later = revoke()
        for path in (LIST, f"{LIST}?x=1", f"{LIST}?x=2&jti={later}"):
            again = http.get(path)
            assert again.headers["X-Request-Id"] == first.headers["X-Request-Id"], path
            assert again.text == first.text and later not in again.text
        assert http.post(LIST).status_code == 405
        until(lambda: later in http.get(LIST).json()["jtis"], KEPT_S + 10)


def test_nobody_else_gets_what_a_page_was_answered(sim_stack, revoke):
    """Of which origin it is stands in it."""
    with client(sim_stack, "auth.localhost") as http:
        jti, page = revoke(), {"Origin": "https://dashboard.example.test"}
        answers = [http.get(LIST, headers=page) for _ in range(2)]
        assert all(jti in answer.json()["jtis"] for answer in answers)
        numbers = {answer.headers["X-Request-Id"] for answer in (*answers, http.get(LIST))}
        assert len(numbers) == 3
