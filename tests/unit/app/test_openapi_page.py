"""The page of the OpenAPI document: all of it is there, it is safe, and it needs nothing from
anywhere."""
import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest

from app.api import factory as api
from app.http.openapi import page
from app.identity import factory as identity
from app.identity.local_authority import LocalAuthority
from config.settings import Settings

VOID = {"meta", "br", "link", "img", "hr", "input"}


class Reader(HTMLParser):
    """Elements with their attributes, ids, links, and whether every element is closed in order."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open, self.text = [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        self.text.append(text)

    def all(self, attribute):
        return [attributes[attribute] for _, attributes in self.elements if attribute in attributes]


@pytest.fixture(scope="module", params=["api", "identity"])
def host(request, tmp_path_factory):
    settings = Settings(session_secret="x", signing_keys_dir=tmp_path_factory.mktemp("keys"))
    app = api.create_app(settings, LocalAuthority(settings)) if request.param == "api" else \
        identity.create_app(settings)
    return app.test_client()


@pytest.fixture(scope="module")
def answer(host):
    return host.get("/docs")


@pytest.fixture(scope="module")
def reader(answer):
    return Reader(answer.text)


def test_the_page_shows_every_operation(host, reader):
    document, ids, text = host.get("/openapi.json").json, set(reader.all("id")), "".join(
        reader.text)
    for path, methods in document["paths"].items():
        for operation in methods.values():
            assert operation["operationId"] in ids and path in text
    for scheme in document["components"]["securitySchemes"]:
        assert scheme in text


def test_links_lead_somewhere_on_it(reader):
    ids = reader.all("id")
    assert len(ids) == len(set(ids))
    assert {link for link in reader.all("href") if link != "openapi.json"} <= {
        f"#{name}" for name in ids
    }


def test_it_loads_nothing_and_its_policy_allows_its_own_style_only(answer, reader):
    tags = {tag for tag, _ in reader.elements}
    assert not tags & {"script", "img", "link", "iframe", "form", "object"}
    assert not [
        name for _, attributes in reader.elements for name in attributes if name.startswith("on")
    ]
    assert not reader.all("style") and not reader.all("src") and "url(" not in answer.text
    style = re.search("<style>(.*?)</style>", answer.text, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert (
        f"default-src 'none'; style-src 'sha256-{digest}'"
        in answer.headers["Content-Security-Policy"]
    )
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_it_fits_a_phone_and_both_schemes(answer):
    assert 'name="viewport"' in answer.text
    assert "prefers-color-scheme: dark" in answer.text and "max-width: 35rem" in answer.text


@pytest.mark.parametrize(("schema", "kind"), [
    ({"type": ["integer", "null"], "minimum": 1, "maximum": 65535
      }, "integer or null, from 1 to 65535"),
    ({"type": "string", "maxLength": 80}, "string, at most 80 characters"),
    ({"type": "array", "items": {"type": "string"}, "maxItems": 3
      }, "list of string, at most 3 items"),
    ({"type": "string", "enum": ["a", "b"], "default": "a"}, '"a" or "b", default "a"'),
    ({"$ref": "#/components/schemas/Sandbox"}, "Sandbox"),
    ({"const": True}, "always true"),
    ({"type": "integer", "minimum": -2**31 + 1, "maximum": 2**31 - 1}, "integer"),
    ({"type": "string", "pattern": "^" + "x" * 99}, "string"),
    ({}, "any value"),
], ids=str)
def test_a_schema_in_words(schema, kind):
    assert page.DocumentReader({}).kind(schema) == kind


def test_text_is_escaped_and_backticks_are_code():
    assert page.mark_code("`a<b` & <script>") == "<code>a&lt;b</code> &amp; &lt;script&gt;"


def test_a_call_to_copy(host):
    shown = Reader(host.get("/docs").text).text
    calls = [text for text in shown if text.startswith("curl ")]
    assert len(calls) == sum(map(len, host.get("/openapi.json").json["paths"].values()))
