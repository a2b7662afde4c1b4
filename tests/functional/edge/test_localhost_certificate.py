"""The authority of one machine: what it makes, when it makes it anew, and that it can vouch for
nothing but names under `localhost`."""
import datetime
import ssl
import stat
import subprocess

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from bin.console import Advice
from bin.stack import localhost_certificate, unix_accounts
from bin.stack.localhost_certificate import ensure_certificate
from bin.stack.site import Site

_DAY = datetime.timedelta(days=1)


@pytest.fixture
def site(tmp_path):
    made = Site(tmp_path, {"SVC_DATA_DIR": str(tmp_path)})
    unix_accounts.prepare(made)
    assert ensure_certificate(made)
    return made


def certificate(site):
    return x509.load_pem_x509_certificate((site.data_dir / "edge" / "tls.pem").read_bytes())


def test_the_key_is_roots_and_the_certificate_everybodys(site):
    key, ca = site.data_dir / "ca.key", site.data_dir / "ca.pem"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600 and key.stat().st_uid == 0
    assert stat.S_IMODE(ca.stat().st_mode) == 0o644
    assert stat.S_IMODE((site.data_dir / "edge" / "tls.key").stat().st_mode) == 0o600


def test_browsers_take_the_certificate(site):
    found = certificate(site)
    lasts = found.not_valid_after_utc - found.not_valid_before_utc
    assert lasts == 397 * _DAY and found.signature_hash_algorithm.name == "sha256"
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [
        "localhost", "api.localhost", "auth.localhost", "shell.localhost", "*.preview.localhost",
        "*.apps.localhost"]


def test_it_is_made_once(site):
    before = certificate(site).serial_number
    assert not ensure_certificate(site)
    assert certificate(site).serial_number == before


def test_it_is_made_anew_near_its_end_by_the_same_authority(site, monkeypatch):
    before, trusted = certificate(site).serial_number, (site.data_dir / "ca.pem").read_bytes()
    later = localhost_certificate._now() + (397 - 59) * _DAY
    monkeypatch.setattr(localhost_certificate, "_now", lambda: later)
    assert ensure_certificate(site)
    assert certificate(site).serial_number != before
    assert (site.data_dir / "ca.pem").read_bytes() == trusted


def test_another_domain_makes_another_certificate(site):
    changed = Site(site.data_dir, {**site.values, "SVC_PREVIEW_DOMAIN": "p.localhost"})
    assert ensure_certificate(changed)
    with pytest.raises(Advice, match="SVC_TLS_CERT"):
        ensure_certificate(
            Site(site.data_dir, {**site.values, "SVC_PREVIEW_DOMAIN": "example.test"}))


@pytest.mark.parametrize("name", ["ca.pem", "ca.key", "edge/tls.pem", "edge/tls.key"])
@pytest.mark.parametrize("left", ["", "-----BEGIN CERTIFICATE-----\nMII"])
def test_what_a_full_disk_has_left_is_made_anew(site, name, left):
    (site.data_dir / name).write_text(left)
    assert ensure_certificate(site)
    ca = x509.load_pem_x509_certificate((site.data_dir / "ca.pem").read_bytes())
    certificate(site).verify_directly_issued_by(ca)
    assert not ensure_certificate(site)


def test_one_that_another_authority_has_signed_is_made_anew(site, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("other")
    other = Site(elsewhere, {"SVC_DATA_DIR": str(elsewhere)})
    unix_accounts.prepare(other)
    assert ensure_certificate(other)
    for name in ("tls.pem", "tls.key"):
        (site.data_dir / "edge" / name).write_bytes((other.data_dir / "edge" / name).read_bytes())
    assert ensure_certificate(site) and not ensure_certificate(site)


def test_a_file_that_cannot_be_written_whole_leaves_the_one_before(tmp_path):
    kept = tmp_path / "file"
    unix_accounts.own_file(kept, "whole", "root")
    with pytest.raises(UnicodeEncodeError):
        unix_accounts.own_file(kept, "half \ud800", "root")
    assert kept.read_text() == "whole"


def test_a_certificate_of_the_operator_is_left_alone(tmp_path):
    given = Site(tmp_path, {"SVC_TLS_CERT": "/etc/svc/tls.pem", "SVC_TLS_KEY": "/etc/svc/tls.key"})
    assert not ensure_certificate(given) and not (tmp_path / "ca.pem").exists()


@pytest.mark.parametrize(("name", "taken"), [("a.localhost", True), ("bank.example", False)])
def test_whoever_has_its_key_cannot_vouch_for_other_names(site, tmp_path, name, taken):
    key = serialization.load_pem_private_key(
        (site.data_dir / "ca.key").read_bytes(), None)
    ca = x509.load_pem_x509_certificate((site.data_dir / "ca.pem").read_bytes())
    _, forged = localhost_certificate._sign_leaf([name], ca, key)
    leaf = tmp_path / "leaf.pem"
    leaf.write_bytes(forged.public_bytes(serialization.Encoding.PEM))
    judged = subprocess.run(["openssl", "verify", "-CAfile", site.data_dir / "ca.pem", leaf],
                            text=True, capture_output=True, check=False)
    assert (judged.returncode == 0) is taken, judged.stderr
    assert taken or "permitted subtree violation" in judged.stderr
    assert ssl.create_default_context(cafile=site.data_dir / "ca.pem")
