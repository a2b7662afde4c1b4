"""Whose address counts when guesses at a password are slowed down: behind proxies and the edge the
client's, which it cannot choose."""
import pytest

from services.accounts.sign_in_throttle import PAIR_TRIES
from tests.stack.edge import host, wrong

pytestmark = pytest.mark.usefixtures("clean_slate")


def test_behind_a_proxy_the_caller_counts_and_cannot_choose_its_address(edge):
    behind = host(edge, proxy_hops=1)
    for number in range(PAIR_TRIES):
        forged = {"X-Forwarded-For": f"10.9.9.{number}, 192.0.2.50"}
        assert wrong(edge, behind, "proxied@example.test", "10.0.0.1", forged) == 401
    assert wrong(edge, behind, "proxied@example.test", "10.0.0.1",
                 {"X-Forwarded-For": "192.0.2.50"}) == 429
    assert wrong(edge, behind, "proxied@example.test", "10.0.0.1",
                 {"X-Forwarded-For": "192.0.2.51"}) == 401
    direct = host(edge)
    for number in range(PAIR_TRIES):
        wrong(edge, direct, "direct@example.test", "192.0.2.60",
              {"X-Forwarded-For": f"10.9.9.{number}"})
    assert wrong(edge, direct, "direct@example.test", "192.0.2.60",
                 {"X-Forwarded-For": "10.9.9.99"}) == 429


def test_from_the_edge_the_client_counts_and_nobody_else_can_name_an_address(edge):
    behind = host(edge, edge_secret="known to the edge")
    shown = {"X-Svc-Edge": "known to the edge"}
    for number in range(PAIR_TRIES):
        forged = {**shown, "X-Forwarded-For": f"10.9.9.{number}, 192.0.2.80"}
        assert wrong(edge, behind, "edged@example.test", "127.0.0.1", forged) == 401
    for address, status in (("192.0.2.80", 429), ("192.0.2.81", 401)):
        assert wrong(edge, behind, "edged@example.test", "127.0.0.1",
                     {**shown, "X-Forwarded-For": address}) == status
    for number, guess in enumerate(("", "guessed", "known to the edg\xe9") * 4):
        status = wrong(edge, behind, "past@example.test", "127.0.0.1",
                       {"X-Svc-Edge": guess, "X-Forwarded-For": f"10.9.9.{number}"})
        assert status == (401 if number < PAIR_TRIES else 429)


def test_without_a_secret_the_edge_is_nobody(edge):
    for number in range(PAIR_TRIES + 1):
        status = wrong(edge, host(edge), "none@example.test", "192.0.2.90",
                       {"X-Svc-Edge": "", "X-Forwarded-For": f"10.9.9.{number}"})
    assert status == 429
