"""What the service ships with is what the contract says: tests shorten these times for themselves,
so nothing else would notice."""
import pytest

from config.settings import Settings


@pytest.mark.parametrize(("name", "promised"), [
    ("identity_poll_s", 30), ("webhook_waits", (1, 5, 20)), ("api_key_limit", 10),
    ("api_keys_per_hour", 5), ("service_token_s", 365 * 24 * 3600),
    ("static_collect_s", 90), ("deploy_ready_s", 30),
])
def test_the_default_is_the_contracts(name, promised):
    assert getattr(Settings(), name) == promised
