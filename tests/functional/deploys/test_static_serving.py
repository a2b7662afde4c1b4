"""What nginx answers for a static app: the files of version N, then of N-1, then the page or 404
(contract, Deploy rules 4, 6, 7), while versions come and go."""
import shutil
import threading

import httpx
import pytest

from models.database import connect, connection, database
from models.deploys import DeployPrefix
from objects.store import ObjectStore
from services.deploys import version_prefixes
from services.deploys.edges import staging
from services.protocols import Deps
from tasks.wiring import no_guest
from tests.fakes.outside import ListQueue
from tests.rows.static_apps import collect_now, publish
from tests.stack.credentials import bearer
from tests.stack.waiting import becomes, until
from tests.tls.clients import client

PAGE = "public, max-age=60, must-revalidate"
ASSET = "public, max-age=31536000, immutable"
HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
ONE = {"index.html": "one", "assets/one.js": "1", "old.txt": "old", "robots.txt": "r1",
       "about/index.html": "about one", "assets/AUTHORS": "we"}
TWO = {"index.html": "two", "assets/two.js": "2" * 3000, "robots.txt": "r2", "plain": "p",
       "about/index.html": "about two", "deep/page.html": "page", "app.webmanifest": "{}",
       "assets/sub/x.js": "x", "assets/LICENSE": "free", "v1.2/index.html": "about 1.2"}


@pytest.fixture(scope="module")
def deps(sim_stack):
    connect(sim_stack.settings.database_url, pool_size=5)
    yield Deps(sim_stack.settings, ListQueue(), no_guest)
    database.close_all()


def host(slug):
    return f"{slug}.apps.localhost"


@pytest.fixture(scope="module")
def shop(sim_stack, deps):
    """A client of an app whose version 2 is live and whose version 1 was before."""
    publish(deps, "shop", ONE)
    publish(deps, "shop", TWO)
    with client(sim_stack, host("shop")) as http:
        until(lambda: http.get("/").text == "two")
        yield http


@pytest.mark.parametrize(("path", "headers", "status", "text", "age"), [
    ("/", {}, 200, "two", PAGE),
    ("/index.html", {}, 200, "two", PAGE),
    ("/assets/two.js", {}, 200, "2" * 3000, ASSET),
    ("/robots.txt", {}, 200, "r2", PAGE),
    ("/deep/page.html", {}, 200, "page", PAGE),
    ("/about/", {}, 200, "about two", PAGE),
    ("/plain", {}, 200, "p", PAGE),
    # of version 1
    ("/assets/one.js", {}, 200, "1", ASSET),
    ("/old.txt", {}, 200, "old", PAGE),
    # below assets/, without an extension
    ("/assets/LICENSE", {}, 200, "free", ASSET),
    ("/assets/AUTHORS", {}, 200, "two", PAGE),
    ("/assets/none/at/all", HTML, 200, "two", PAGE),
    # of neither
    ("/assets/three.js", {}, 404, None, "no-store"),
    ("/three.png", {}, 404, None, "no-store"),
    ("/three.png", HTML, 200, "two", PAGE),
    ("/a/route/of/the/app", {}, 200, "two", PAGE),
    # directories
    ("/assets/", {}, 200, "two", PAGE),
    ("/assets/sub", {}, 200, "two", PAGE),
    ("/v1.2", {}, 404, None, "no-store"),
    ("/v1.2", HTML, 200, "two", PAGE),
    ("/v1.2/", {}, 200, "about 1.2", PAGE),
    ("/a/route", HTML, 200, "two", PAGE),
    # of nobody's business
    ("/cur/index.html", {}, 404, None, "no-store"),
    ("/../index.html", {}, 200, "two", PAGE),
    ("/_app/index", {}, 200, "two", PAGE),
    ("/files.json", {}, 404, None, "no-store"),
])
def test_what_is_served(shop, path, headers, status, text, age):
    answer = shop.get(path, headers=headers)
    assert (answer.status_code, answer.headers["cache-control"]) == (status, age)
    if text is None:
        assert set(answer.json()) == {"error"}
    else:
        assert answer.text == text


@pytest.mark.parametrize(("path", "kind"), [
    ("/", "text/html; charset=utf-8"), ("/assets/two.js", "text/javascript; charset=utf-8"),
    ("/app.webmanifest", "application/manifest+json"), ("/plain", "application/octet-stream")])
def test_files_have_the_media_types_that_browsers_insist_on(shop, path, kind):
    assert shop.get(path).headers["content-type"] == kind


def test_what_is_large_is_compressed_and_may_be_asked_for_in_parts(shop):
    answer = shop.get("/assets/two.js", headers={"Accept-Encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip" and len(answer.text) == 3000
    for encoding in ("gzip", "identity"):
        answer = shop.get("/assets/two.js", headers={"Accept-Encoding": encoding})
        assert answer.headers["vary"] == "Accept-Encoding", "or a cache gives it to everybody"
    part = shop.get("/assets/two.js", headers={"Range": "bytes=0-9", "Accept-Encoding": ""})
    assert (part.status_code, part.text) == (206, "2" * 10)


@pytest.mark.parametrize("path", ["/", "/assets/two.js", "/a/page"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_is_taken(shop, method, path):
    assert shop.request(method, path, content=b"x").status_code == 405


def test_an_app_that_is_not_there_is_404(sim_stack):
    with client(sim_stack, host("nobody")) as http:
        assert http.get("/", headers=HTML).status_code == 404


def test_a_page_of_the_same_length_has_another_etag_in_the_next_version(sim_stack, deps):
    publish(deps, "tags", {"index.html": "aaa"})
    with client(sim_stack, host("tags")) as http:
        until(lambda: http.get("/").text == "aaa")
        first = http.get("/").headers["etag"]
        assert http.get("/", headers={"If-None-Match": first}).status_code == 304
        publish(deps, "tags", {"index.html": "bbb"})
        until(lambda: http.get("/", headers={"If-None-Match": first}).status_code == 200)
        assert http.get("/").text == "bbb"


def test_version_n_1_goes_after_its_time_and_n_2_at_once(sim_stack, deps):
    for number in (1, 2, 3):
        publish(deps, "old", {"index.html": str(number), f"assets/{number}.js": "x"})
    with client(sim_stack, host("old")) as http:
        until(lambda: http.get("/").text == "3")
        found = [http.get(f"/assets/{number}.js").status_code for number in (1, 2, 3)]
        assert found == [404, 200, 200]
        collect_now("old")
        becomes(lambda: http.get("/assets/2.js").status_code, 404, 30)
        assert http.get("/assets/3.js").status_code == 200
    with connection():
        app_id = DeployPrefix.select().where(DeployPrefix.version == 3).order_by(
            DeployPrefix.created_at.desc()).get().app_id
    objects = ObjectStore(sim_stack.settings)
    becomes(lambda: {each.key.split("/")[2] for each in objects.list_objects(f"apps/{app_id}/")},
            {"v3-1"}, 30)


def test_names_that_are_in_the_way_of_compressed_ones_are_served(sim_stack, deps):
    longest, script = "n" * 252 + ".js", "x" * 3000
    publish(deps, "names", {"index.html": "names", "z.js": script, "z.js.gz/inner.txt": "inner",
                            longest: script, "n" * 253 + ".js": script})
    with client(sim_stack, host("names")) as http:
        until(lambda: http.get("/").text == "names")
        for path in ("z.js", longest):
            assert http.get(f"/{path}").text == script
        assert http.get("/z.js.gz/inner.txt").text == "inner"
        assert http.get("/" + "n" * 253 + ".js").status_code == 404, "no file system takes it"


def test_a_file_that_ends_as_compressed_ones_is_nothing_but_itself(sim_stack, deps):
    own = {"y.js.gz": "of y", "y.js.gz.gz": "of that", "only.tar.gz": "tar", "short.js.gz": "of it",
           "assets/z.js.gz": "of z"}
    publish(deps, "own", {"index.html": "v1", "old.csv.gz": "old"})
    publish(deps, "own", {"index.html": "v2", "y.js": "y" * 3000, "short.js": "short", **own})
    with client(sim_stack, host("own")) as http:
        until(lambda: http.get("/").text == "v2")
        for path, text in {"y.js": "y" * 3000, "short.js": "short", "old.csv.gz": "old",
                           **own}.items():
            answer = http.get(f"/{path}", headers={"Accept-Encoding": "gzip"})
            assert (answer.status_code, answer.text) == (200, text), path
            assert answer.headers["cache-control"] == (ASSET if "assets" in path else PAGE)
            assert "Content-Encoding" not in answer.headers or path == "y.js"
        for path in ("only.tar", "y.js.gz.gz.gz", "none.gz"):
            assert http.get(f"/{path}").status_code == 404
        assert http.get("/none.gz", headers=HTML).text == "v2"
        assert http.post("/y.js.gz").status_code == 405
        live = sim_stack.site.data_dir / "releases" / "own" / "live" / "cur"
        (live / "older.gz").write_text("as an edge before an upgrade put it")
        assert http.get("/older.gz").text == "as an edge before an upgrade put it"


def test_what_cannot_be_fetched_leaves_nothing_and_is_fetched_once_it_can_be(sim_stack, deps):
    claimed = publish(deps, "torn", {"index.html": "torn", "zzz.js": "x" * 3000})
    objects, here = ObjectStore(sim_stack.settings), sim_stack.site.data_dir / "releases" / "torn"
    prefix = version_prefixes.prefix_of(claimed.app_id, claimed.version, claimed.epoch)
    key = version_prefixes.file_key(prefix, "zzz.js")
    content = b"".join(objects.get_stream(key))
    objects.put_stream(key, [b"of somebody else"])
    for version in here.glob("app_*"):
        shutil.rmtree(version)
    staging.tell()
    log = sim_stack.site.data_dir / "log" / "releases.log"
    until(lambda: "a version of torn is not here yet" in log.read_text())
    drafts = here.parent / ".drafts"
    becomes(lambda: list(drafts.iterdir()), [])
    objects.put_stream(key, [content])
    with client(sim_stack, host("torn")) as http:
        becomes(lambda: http.get("/").text, "torn", 30)
    assert list(drafts.iterdir()) == []


def test_under_load_no_request_fails_and_no_older_page_follows_a_newer(sim_stack, deps):
    """Each reader fetches the page and then the script that it names, while six versions go
    live."""
    def files(number):
        return {"index.html": str(number), f"assets/{number}.js": "x"}

    publish(deps, "busy", files(0))
    failed, ended, last = [], threading.Event(), [0] * 4

    def reader(which):
        with client(sim_stack, host("busy")) as http:
            until(lambda: http.get("/").status_code == 200)
            while not ended.is_set():
                page = http.get("/")
                script = http.get(f"/assets/{page.text}.js")
                if (page.status_code, script.status_code) != (200, 200) or int(
                        page.text) < last[which]:
                    failed.append((last[which], page.text, page.status_code, script.status_code))
                last[which] = int(page.text)

    threads = [threading.Thread(target=reader, args=(which,)) for which in range(4)]
    for thread in threads:
        thread.start()
    try:
        for number in range(1, 7):
            publish(deps, "busy", files(number))
            # The one before the last goes at once: nobody is to be two behind.
            until(lambda: min(last) >= number)  # noqa: B023 - awaited within the round
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert failed == []


def test_what_is_waited_for_is_served_at_once(sim_stack, deps):
    for number in range(10):
        publish(deps, "prompt", {"index.html": str(number)})
        assert staging.wait_until_caught_up(20)
        with client(sim_stack, host("prompt")) as http:
            assert http.get("/").text == str(number)


def test_an_app_is_not_served_any_more_when_its_removal_is_answered(sim_stack, deps):
    token = sim_stack.run("python -m app.operator service-token-mint removers").split()[-1]
    for _ in range(5):
        owner_id = publish(deps, "brief", {"index.html": "brief"}).owner_id
        assert staging.wait_until_caught_up(20)
        with client(sim_stack, host("brief")) as http:
            assert http.get("/").status_code == 200
            removed = httpx.delete(f"{sim_stack.api_url}/v1/deploys/brief", trust_env=False,
                                   headers={**bearer(token), "X-On-Behalf-Of": owner_id})
            assert (removed.status_code, http.get("/").status_code) == (200, 404)


def test_the_directory_is_made_again_from_rows_and_store(sim_stack, deps, shop):
    """An edge that lost its disk, or a new one."""
    sim_stack.stop("releases")
    for path in (sim_stack.site.data_dir / "releases").glob("*"):
        sim_stack.run(f"rm -rf {path}")
    assert shop.get("/").status_code == 503
    sim_stack.start("releases")
    becomes(lambda: shop.get("/").text, "two", 30)
    becomes(lambda: shop.get("/assets/one.js").text, "1", 30)
