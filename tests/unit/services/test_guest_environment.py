"""What the service gives, the sandbox's own variables over it, those of the call over both; and how
many an owner may give."""
import pytest

from config.settings import Settings
from services.hosts.guest_environment import MAX_BYTES, MAX_VARIABLES, environment, find_excess
from services.llm.sandbox_url import proxy_url

PROXIED = Settings(llm_config="/somewhere/llm.json", guest_secret="a key of this box")
URL = proxy_url(PROXIED, "abc")


def test_a_process_finds_the_address_of_its_llm_proxy():
    assert environment(PROXIED, "abc", {}) == {"SVC_AI_URL": URL, "SVC_MEDIA_URL": URL}


def test_without_a_proxy_it_finds_the_variables_of_its_owner_only():
    assert environment(Settings(llm_config=""), "abc", {"A": "1"}) == {"A": "1"}


def test_the_owner_wins_over_the_service_and_the_call_over_both():
    found = environment(PROXIED, "abc", {"SVC_AI_URL": "own", "A": "1", "B": "1"}, {"A": "2"})
    assert found == {"SVC_AI_URL": "own", "SVC_MEDIA_URL": URL, "A": "2", "B": "1"}


@pytest.mark.parametrize(("own", "excess"), [
    ({}, None), ({f"V{number}": "" for number in range(MAX_VARIABLES)}, None),
    ({f"V{number}": "" for number in range(MAX_VARIABLES + 1)}, "256 variables"),
    ({"A": "x" * (MAX_BYTES - 1)}, None), ({"A": "x" * MAX_BYTES}, "65536 bytes"),
    ({"A": "ü" * (MAX_BYTES // 2)}, "65536 bytes"), ({"A" * MAX_BYTES: "x"}, "65536 bytes"),
], ids=["none", "many", "too many", "large", "too large", "bytes not characters", "names count"])
def test_what_an_owner_may_give_is_limited_in_number_and_size(own, excess):
    found = find_excess(own)
    assert found == excess if excess is None else excess in found
