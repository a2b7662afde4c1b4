"""Apps at host names of their own: certificates from files, rows by `svc-admin`, static and served
alike."""
import os
import ssl
import subprocess
from contextlib import contextmanager

import httpx
import pytest

from config.nginx.certificates import find_certificates
from config.nginx.reload import reload
from config.nginx.render import certificates_directory_of, find_nginx, render, write
from config.settings import Settings
from models.database import connection
from models.deploys import Deploy
from services.deploys.apps import host_names
from services.errors import Conflict, InvalidRequest, NotFound
from services.protocols import Deps
from tasks.wiring import no_guest
from tests.fakes.outside import ListQueue
from tests.rows import served_apps, static_apps
from tests.stack.operator import run_operator
from tests.stack.waiting import becomes, until
from tests.tls.clients import client

NAME, LONG = "www.shop.example", f"{'a' * 60}.shop.example"


def make_certificate(directory, file, *names):
    """A certificate for these names that vouches for itself."""
    directory.mkdir(parents=True, exist_ok=True)
    key, certificate = directory / f"{file}.key", directory / f"{file}.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=shop",
         "-addext", "subjectAltName=" + ",".join(f"DNS:{name}" for name in names)],
        check=True, capture_output=True)
    return certificate


@pytest.fixture
def certify(sim_stack):
    """Lets the edge have a certificate for these names, and gives it."""
    directory = certificates_directory_of(sim_stack.settings)

    def make(*names):
        certificate = make_certificate(directory, "kiosk", *names)
        owner = directory.parent.stat()
        for path in (directory, *directory.iterdir()):
            os.chown(path, owner.st_uid, owner.st_gid)
        reload(sim_stack.settings, find_nginx())
        return certificate
    yield make
    for path in directory.iterdir():
        path.unlink()
    reload(sim_stack.settings, find_nginx())


@contextmanager
def visitor(stack, certificate):
    """A client of NAME that trusts its certificate only."""
    def name(request):
        request.extensions["sni_hostname"] = NAME
    port, context = stack.settings.edge_port, ssl.create_default_context(cafile=certificate)
    with httpx.Client(base_url=f"https://127.0.0.1:{port}", verify=context, trust_env=False,
                      headers={"Host": f"{NAME}:{port}"}, timeout=60,
                      event_hooks={"request": [name]}) as http:
        yield http


@pytest.fixture
def visit(sim_stack, certify):
    """GETs a path of NAME from the edge."""
    certificate = certify(NAME, "shop.example")

    def get(path):
        with visitor(sim_stack, certificate) as http:
            return http.get(path)
    return get


def test_a_wildcard_above_our_domains_takes_nothing_from_them(shop, sim_stack, certify):
    domain = sim_stack.settings.apps_domain
    certify(f"*.{domain.partition('.')[2]}")
    assert shop.get("/nonce").status_code == 200
    static_apps.publish(Deps(sim_stack.settings, ListQueue(), no_guest), "stand",
                        {"index.html": "files"})
    with client(sim_stack, f"stand.{domain}") as http:
        becomes(lambda: http.get("/").text, "files")
        for name in (f"kiosk.stand.{domain}", f"-.{domain}", f"nobody.{domain}"):
            assert http.get("/", headers={"Host": name}).status_code == 404, name
    served_apps.take_away("stand")


def test_long_and_odd_names_of_a_certificate_leave_the_others(sim_stack, certify):
    certificate = certify(LONG, "f*.shop.example", NAME)
    with visitor(sim_stack, certificate) as http:
        assert http.get("/").status_code == 404


def test_a_host_of_our_own_may_be_long(tmp_path):
    edge, certificate = tmp_path / "edge", make_certificate(tmp_path, "own", LONG)
    edge.mkdir()
    settings = Settings(data_dir=tmp_path, api_url=f"https://{LONG}",
                        api_bind="127.0.0.1:1", tls_cert=str(certificate),
                        tls_key=str(certificate.with_suffix(".key")))
    write(edge / "nginx.conf", render(settings, find_nginx(), 1024))
    subprocess.run([*find_nginx().command, "-t", "-c", edge / "nginx.conf"], check=True)


def test_an_app_is_found_at_its_name_as_long_as_that_is_its(shop, sim_stack, versions, visit):
    assert visit("/nonce").status_code == 404
    code, said, _ = run_operator(sim_stack.env, "app-host-add", "kiosk", NAME)
    assert (code, said) == (0, f"{NAME} leads to kiosk.\n")
    until(lambda: visit("/nonce").text == shop.get("/nonce").text)
    assert NAME in run_operator(sim_stack.env, "app-host-list")[1]
    served_apps.go_live("kiosk", versions[1].sandbox_id)
    until(lambda: visit("/nonce").text == versions[1].get("/nonce").text)
    assert run_operator(sim_stack.env, "app-host-remove", NAME)[0] == 0
    becomes(lambda: visit("/nonce").status_code, 404)
    assert run_operator(sim_stack.env, "app-host-remove", NAME)[0] == 1


def test_so_is_a_static_app_with_its_version_before(sim_stack, stack_rows, visit):
    deps = Deps(sim_stack.settings, ListQueue(), no_guest)
    for number in ("one", "two"):
        static_apps.publish(deps, "stand", {"index.html": number, f"assets/{number}.js": number,
                                            f"{number}.txt": number})
    assert run_operator(sim_stack.env, "app-host-add", "stand", NAME)[0] == 0
    becomes(lambda: visit("/").text, "two")
    for path, text in {"/assets/two.js": "two", "/two.txt": "two", "/a/route": "two",
                       "/assets/one.js": "one", "/one.txt": "one"}.items():
        answer = visit(path)
        assert (answer.status_code, answer.text) == (200, text), path
    assert visit("/assets/none.js").status_code == 404
    static_apps.publish(deps, "stand", {"index.html": "three"})
    becomes(lambda: visit("/").text, "three")
    assert visit("/two.txt").text == "two" and visit("/one.txt").status_code == 404
    static_apps.collect_now("stand")
    becomes(lambda: visit("/two.txt").status_code, 404, 30)
    assert run_operator(sim_stack.env, "app-host-remove", NAME)[0] == 0
    becomes(lambda: visit("/").status_code, 404)
    served_apps.take_away("stand")


def test_which_names_an_app_may_have(shop, sim_stack):
    settings = sim_stack.settings
    served_apps.go_live("other", Deploy.get_by_id("kiosk").live_sandbox_id)
    host_names.add(settings, "kiosk", "Shop.Example.")
    host_names.add(settings, "kiosk", "shop.example")
    assert [each.slug for each in host_names.list_all() if each.host == "shop.example"] == ["kiosk"]
    with pytest.raises(Conflict):
        host_names.add(settings, "other", "shop.example")
    with pytest.raises(NotFound):
        host_names.add(settings, "nobody", "nobody.example")
    host_names.remove("SHOP.example.")
    assert "shop.example" not in {each.host for each in host_names.list_all()}
    host_names.add(settings, "kiosk", "shop.example")
    for bad in ("kiosk", "10.0.0.1", "a b.example", "-a.example", "a..example", "é.example",
                "x.apps.localhost", "preview.localhost", "a." * 130 + "example", "a/../b.example"):
        with pytest.raises(InvalidRequest):
            host_names.add(settings, "kiosk", bad)
    served_apps.take_away("other")
    served_apps.take_away("kiosk")
    assert host_names.list_all() == [], "they went with their apps"
    with connection():
        assert not Deploy.select().where(Deploy.slug == "other").exists()


def test_a_certificate_that_cannot_be_used_leaves_the_others(tmp_path, capsys):
    good = make_certificate(tmp_path, "good", "a.example", "*.b.example", "x.apps.localhost")
    make_certificate(tmp_path, "later", "a.example")
    make_certificate(tmp_path, "mixed", "c.example")
    make_certificate(tmp_path, "odd", "f*.example", "-d.example", "e_f.example", "é.example",
                     "*", "*.*.example", "g..example", "10.0.0.1", "i.example", "*.internal")
    (tmp_path / "mixed.key").write_text((tmp_path / "good.key").read_text())
    (tmp_path / "broken.pem").write_text("nothing")
    found = find_certificates(tmp_path, ("apps.localhost",))
    assert [(each.names, each.certificate) for each in found] == [
        (("a.example", "*.b.example"), good),
        (("i.example", "*.internal"), tmp_path / "odd.pem")]
    complaints = capsys.readouterr().err
    assert "mixed.pem" in complaints and "broken.pem" in complaints
