"""docs/api.md names every route and every status of an error, and no route that does not exist."""
import re

import pytest

from app.api import factory as api
from app.identity import factory as identity
from app.identity.local_authority import LocalAuthority
from bin.stack.site import ROOT
from config.settings import Settings
from services import errors

DOCS = (ROOT / "docs" / "api.md").read_text()
ROUTE = re.compile(r"`(GET|POST|PUT|PATCH|DELETE) (/[^`\s]*)`")


@pytest.fixture(scope="module")
def routes(tmp_path_factory):
    settings = Settings(session_secret="x", signing_keys_dir=tmp_path_factory.mktemp("keys"))
    apps = api.create_app(settings, LocalAuthority(settings)), identity.create_app(settings)
    rules = [rule for app in apps for rule in app.url_map.iter_rules()]
    names = {"<sandbox_id>": "{id}", "<key_id>": "{key}", "<slug>": "{slug}",
             "<snapshot_id>": "{snapshot}", "<template_id>": "{template}",
             "<rest:path>": "{path...}", "<port>": "{port}", "<variable>": "{variable}"}
    return {(method, re.sub(r"<[\w:]+>", lambda match: names[match.group()], rule.rule))
            for rule in rules for method in rule.methods - {"HEAD", "OPTIONS"}}


def test_every_route_and_only_those(routes):
    assert set(ROUTE.findall(DOCS)) == routes


def statuses(base):
    yield base.status
    for error in base.__subclasses__():
        yield from statuses(error)


def test_every_status(routes):
    listed = {int(status) for status in re.findall(r"^\| (\d{3}) \|", DOCS, re.MULTILINE)}
    assert set(statuses(errors.ServiceError)) <= listed
