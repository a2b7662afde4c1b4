"""What the service ships with is what the contract and our choices say (docs/contract.md): tests
shorten these times for themselves, so nothing else would notice."""
import pytest

from app.gateway import splice
from app.identity import sign_in_places
from bin.stack.site import ROOT
from config.settings import Settings
from nodeworker.deploys.build_scripts import BUILD
from services.guest_calls import files


@pytest.mark.parametrize(("name", "promised"), [
    ("identity_poll_s", 30), ("webhook_waits", (1, 5, 20)), ("api_key_limit", 10),
    ("api_keys_per_hour", 5), ("service_token_s", 365 * 24 * 3600),
    ("static_collect_s", 90), ("deploy_ready_s", 30), ("webhook_timeout_s", 10),
    ("head_s", 10), ("body_silence_s", 30), ("edge_requests_per_address", 1000),
])
def test_the_default_is_the_contracts(name, promised):
    assert getattr(Settings(), name) == promised


@pytest.mark.parametrize(("told", "limit"), [
    ((ROOT / "config" / "nginx" / "nginx.conf").read_text(), "worker_shutdown_timeout 1h;"),
    (BUILD, " -p TasksMax=1024 -p MemoryMax=90% "), (BUILD, f" head -c {1024**2 + 1} "),
], ids=["the edge's old workers", "a build", "its log"])
def test_the_limit_is_the_contracts(told, limit):
    """Those that are no settings."""
    assert limit in told


@pytest.mark.parametrize(("constant", "promised"), [
    (files.WRITE_LIMIT_S, 600), (splice.TAKES_NOTHING_S, 120),
    (sign_in_places.OF_ONE_ACCOUNT, 8), (sign_in_places.OF_ONE_ADDRESS, 17),
])
def test_the_constant_is_what_was_promised(constant, promised):
    assert constant == promised
