"""Who may ask lfg for what: its own page, and no other that a user's browser has open."""
import gzip

import pytest

EVIL = "https://evil.example"
PREVIEW = "k3vabc-8766.preview.localhost:8443"
REBOUND = "evil.example:20001"


@pytest.mark.parametrize("origin", [EVIL, "null", "", "http://127.0.0.1:1", "file://",
                                    "https://127.0.0.1.evil.example"])
@pytest.mark.parametrize("path", ["/ws/session", "/ws/terminal/shell"])
def test_another_page_gets_no_terminal(lfg, origin, path):
    assert lfg.connecting(path, Origin=origin) == 403
    assert lfg.tabs()["shell"]["state"] == "new"


def test_without_an_origin_there_is_no_terminal(lfg):
    assert lfg.connecting("/ws/terminal/shell") == 403


@pytest.mark.parametrize("headers", [{}, {"Origin": EVIL}, {"Origin": "null"}])
def test_another_page_changes_nothing(lfg, headers):
    for method, path in (("POST", "/api/tabs"), ("POST", "/api/repository"),
                         ("DELETE", "/api/tabs/shell"), ("PUT", "/api/tabs"),
                         ("OPTIONS", "/api/tabs")):
        answer = lfg.http.request(method, path, headers=headers)
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers
    assert not (lfg.project / ".git").exists() and len(lfg.tabs()) == 5


def test_the_own_page_is_that_of_the_host_the_edge_names(lfg):
    """The edge may call the server by another name; then it says which one the browser used."""
    passed = {"Host": "localhost:8766", "X-Forwarded-Host": PREVIEW}

    def status(origin):
        return lfg.http.post("/api/repository", headers=passed | {"Origin": origin}).status_code

    assert status(f"https://{PREVIEW}") == 201
    assert status("http://localhost:8766") == 403
    lfg.socket("/ws/session", origin=f"https://{PREVIEW}", host=PREVIEW).close()
    usual = {"Host": "a.example:443", "Origin": "https://a.example"}
    assert lfg.http.post("/api/repository", headers=usual).status_code == 201


@pytest.mark.parametrize("passed", [{}, {"X-Forwarded-Host": "127.0.0.1"},
                                    {"X-Forwarded-Host": REBOUND, "X-Forwarded-Proto": "https"}])
def test_a_page_whose_name_was_made_to_lead_here_is_another(lfg, passed):
    """Its host is then its own, and it may say what it likes about who forwards it."""
    asked = {"Host": REBOUND, "Origin": f"http://{REBOUND}"} | passed
    assert lfg.connecting("/ws/terminal/shell", **asked) == 403
    assert lfg.http.post("/api/repository", headers=asked).status_code == 403
    assert lfg.http.delete("/api/tabs/shell", headers=asked).status_code == 403
    del asked["Origin"]  # as in what a page reads of its own host
    for path in ("/api/files", "/api/file?path=x", "/api/changes", "/api/diff?path=x"):
        assert lfg.http.get(path, headers=asked).status_code == 403
    assert lfg.tabs()["shell"]["state"] == "new" and not (lfg.project / ".git").exists()


@pytest.mark.parametrize("host", ["192.0.2.7:20001", "[2001:db8::7]:20001", "localhost:20001",
                                  "a.localhost:20001"])
def test_an_address_and_this_machine_need_no_tls(lfg, host):
    asked = {"Host": host, "Origin": f"http://{host}"}
    lfg.socket("/ws/session", origin=asked["Origin"], host=host).close()
    assert lfg.http.post("/api/repository", headers=asked).status_code == 201
    assert lfg.http.get("/api/files", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", ["xlocalhost:1", "localhost.evil.example", "1.evil.example"])
def test_what_only_looks_like_one_of_these_is_none(lfg, host):
    assert lfg.http.get("/api/files", headers={"Host": host}).status_code == 403
    assert lfg.connecting("/ws/session", Host=host, Origin=f"http://{host}") == 403


@pytest.mark.parametrize("seen_as", ["a-8766.preview.example", "localhost:8766"],
                         ids=["by its name", "rewritten"])
def test_a_page_behind_the_edge_reads(lfg, seen_as):
    asked = {"Host": seen_as, "X-Forwarded-Host": "a-8766.preview.example",
             "Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}
    assert lfg.http.get("/api/files", headers=asked).status_code == 200


def test_another_page_reads_nothing(lfg):
    for site in ("cross-site", "same-site"):
        fetched = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}
        assert lfg.http.get("/api/files", headers=fetched).status_code == 403
    same = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}
    assert lfg.http.get("/api/files", headers=same).status_code == 200


def test_every_answer_confines_the_page(lfg):
    for path in ("/", "/nothing", "/api/files", "/api/file?path=nothing"):
        headers = lfg.http.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "script-src 'self';" in policy
        assert "frame-ancestors 'none'" in policy and headers["x-frame-options"] == "DENY"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["x-content-type-options"] == "nosniff"


def test_files_of_the_page_are_packed_and_kept(lfg):
    plain = lfg.http.get("/style.css", headers={"Accept-Encoding": "identity"})
    assert plain.headers["content-type"].startswith("text/css")
    with lfg.http.stream("GET", "/style.css", headers={"Accept-Encoding": "gzip"}) as packed:
        assert packed.headers["content-encoding"] == "gzip"
        assert gzip.decompress(b"".join(packed.iter_raw())) == plain.content
    again = lfg.http.get("/style.css", headers={"If-None-Match": plain.headers["etag"]})
    assert again.status_code == 304 and not again.content
    assert lfg.http.head("/").status_code == 200


@pytest.mark.parametrize("path", ["/../main.ts", "/..%2fserver%2fmain.ts", "/server/main.ts",
                                  "/api/nothing", "/xterm/../server/main.ts"])
def test_nothing_else_is_served(lfg, path):
    assert lfg.http.get(path).status_code == 404


def test_bodies_and_methods_have_limits(lfg):
    def status(method, path, **options):
        return lfg.change(method, path, **options).status_code

    assert status("POST", "/api/tabs", content=b"x" * 100_000) == 413
    assert status("POST", "/api/tabs", content=b"{") == 400
    assert status("POST", "/api/tabs", json={"program": "toString"}) == 400
    assert status("POST", "/api/tabs", json={"program": ["shell"]}) == 400
    assert status("PATCH", "/api/tabs", json={}) == 405
    assert lfg.http.get("/ws/session", headers={"Origin": lfg.origin}).status_code == 426
