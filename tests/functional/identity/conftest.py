"""An identity host and two API hosts, the second of which has no key directory."""

import pytest

from bin.stack import health
from bin.stack.running import private_stack
from tests.stack.identity_site import SETTINGS, Site
from tests.stack.waiting import until


@pytest.fixture(scope="module")
def site(clean_host):
    stack = private_stack("test-identity", SETTINGS, processes=("api", "identity"))
    try:
        stack.start_servers()
        stack.prepare()
        stack.start("api", "identity")
        until(
            lambda: health.answers(f"{stack.api_url}/health")
            and health.answers(f"{stack.auth_url}/health")
        )
        stack.seed()
        made = Site(stack)
        try:
            yield made
        finally:
            made.close()
    finally:
        stack.destroy()


@pytest.fixture(scope="module")
def apis(site):
    """Two API hosts with two worker processes each; the second has no key directory."""
    return site.stack.api_url, site.start("api")
