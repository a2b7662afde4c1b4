"""Which addresses the registry cache takes, and what it makes of documents."""
import json

import pytest

from app.guest_gateway.npm.packages import find_wanted, rewrite

CACHE = "http://cache/npm"


@pytest.mark.parametrize(("path", "found"), [
    ("/react", "react"), ("/@types/node", "@types%2fnode"), ("/@types%2Fnode", "@types%2fnode"),
    ("/react/-/react-19.0.0.tgz", "react/-/react-19.0.0.tgz"),
    ("/@types%2fnode/-/node-1.0.0-rc.1+b.tgz", "@types/node/-/node-1.0.0-rc.1+b.tgz"),
    ("/@a/b/-/@a/b-1.0.0.tgz", "@a/b/-/@a/b-1.0.0.tgz"), ("/JSONStream", "JSONStream"),
])
def test_packages_are_taken(path, found):
    assert find_wanted(path, "").path == found


@pytest.mark.parametrize("path", [
    "", "/", "/..", "/../x", "/a/../b", "/a/b", "/%2e%2e", "/a%2f..", "/@a%2f../b", "/a?x=1",
    "/a/-/../b.tgz", "/a/-/b.zip", "//evil", "/a@evil", "/-/npm/v1/search", "/a\\b", "/a b",
    "/a/-/..%2fb.tgz", "/" + "a" * 300, "/@evil:80/x", "/a#b",
])
def test_nothing_else_is(path):
    assert find_wanted(path, "") is None


def test_a_document_has_two_forms_and_a_tarball_one():
    short = find_wanted("/a", "application/vnd.npm.install-v1+json; q=1.0, */*")
    assert short != find_wanted("/a", "text/html") == find_wanted("/a", "*/*")
    assert find_wanted("/a/-/a-1.tgz", "x/y") == find_wanted("/a/-/a-1.tgz", "")


@pytest.mark.parametrize(("registry", "tarball", "moved"), [
    ("https://r.test", "https://r.test/a/-/a-1.tgz", f"{CACHE}/a/-/a-1.tgz"),
    ("https://r.test", "http://r.test:80/@s/a/-/a-1.tgz", f"{CACHE}/@s/a/-/a-1.tgz"),
    ("https://r.test/npm/all", "https://r.test/npm/all/a/-/a-1.tgz", f"{CACHE}/a/-/a-1.tgz"),
    ("https://r.test/npm/all", "https://r.test/npm/a/-/a-1.tgz", None),
    ("https://r.test:81", "https://r.test/a/-/a-1.tgz", None),
    ("https://r.test", "https://elsewhere.test/a/-/a-1.tgz", None),
    ("https://r.test", "https://r.test/download/1234", None),
    ("https://r.test", "https://r.test:x/a/-/a-1.tgz", None),
    ("https://r.test", "\u00e4", None),
])
def test_tarballs_of_the_registry_are_found_at_the_cache(registry, tarball, moved):
    document = {"versions": {"1": {"dist": {"tarball": tarball}}},
                "readme": f'"tarball":"{registry}/a/-/a-1.tgz"'}
    for text in (json.dumps(document), json.dumps(document).replace("/", "\\/")):
        found = json.loads(rewrite(text.encode(), registry, CACHE))
        assert found["versions"]["1"]["dist"]["tarball"] == (moved or tarball)
        assert found["readme"] == document["readme"]
