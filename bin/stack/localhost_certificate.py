"""The certificate authority of one machine, for names under `localhost`, and the certificate of the
edge that it signs.

`ca.pem` in the stack's directory is for everybody, its key for root only. The authority can vouch
for names under `localhost` and for no others, so trusting it gives nobody the rest of the web.
"""
import datetime
import os
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from bin.console import Advice
from bin.stack.site import Site
from bin.stack.unix_accounts import own_file
from config.nginx.render import certificate_of
from config.processes import PROCESSES
from config.settings import load

_Pair = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]
_DAY = datetime.timedelta(days=1)
# As long as browsers take one, of any authority.
LEAF_DAYS, CA_DAYS = 397, 3650
# One that ends within this time is made anew.
RENEW_DAYS = 60
_ROOT = "localhost"


def ensure_certificate(site: Site) -> bool:
    """Make the authority and the edge's certificate if they are missing, not whole, near their end
    or for other names; True if anything was made. A certificate of the settings is left alone."""
    settings = load(site.values)
    if settings.tls_cert:
        return False
    names = names_of(settings.preview_domain, settings.apps_domain)
    certificate, key = certificate_of(settings)
    ca_key = site.data_dir / "ca.key"
    known = _find(ca_path(site), ca_key)
    authority, signer = known or _make_authority(ca_path(site), ca_key)
    leaf = _find(certificate, key)
    if leaf and _is_signed(leaf[0], authority) and set(names) <= _names_in(leaf[0]):
        return False
    own_key, signed = _sign_leaf(names, authority, signer)
    account = PROCESSES["edge"].account
    own_file(key, _key_text(own_key), account)
    own_file(certificate, _text(signed), account)
    return True


def ca_path(site: Site) -> Path:
    """The file that clients trust."""
    return site.data_dir / "ca.pem"


def names_of(preview_domain: str, apps_domain: str) -> list[str]:
    """Every host of the edge; raises Advice for what the authority cannot vouch for."""
    for domain in (preview_domain, apps_domain):
        if not domain.endswith(f".{_ROOT}"):
            raise Advice(f"{domain} is not under {_ROOT}, so this machine's own authority cannot"
                         " vouch for it: set SVC_TLS_CERT and SVC_TLS_KEY.")
    own = [_ROOT, *(f"{name}.{_ROOT}" for name in ("api", "auth", "shell"))]
    return [*own, f"*.{preview_domain}", f"*.{apps_domain}"]


def _find(path: Path, key_path: Path) -> _Pair | None:
    """A certificate that lasts, and its key; None if one is missing, or is not whole as after a
    full disk, or they do not belong together."""
    try:
        found = x509.load_pem_x509_certificate(path.read_bytes())
        key = serialization.load_pem_private_key(key_path.read_bytes(), None)
    except (FileNotFoundError, ValueError):
        return None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != found.public_key():
        return None
    return (found, key) if found.not_valid_after_utc - _now() >= RENEW_DAYS * _DAY else None


def _is_signed(leaf: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        leaf.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError):
        return False
    return True


def _names_in(leaf: x509.Certificate) -> set[str]:
    held = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return set(held.get_values_for_type(x509.DNSName))


def _make_authority(path: Path, key_path: Path) -> _Pair:
    """A new authority; whoever trusted the old one has to trust this one."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _named(f"Sandbox service on {os.uname().nodename}")
    signed = (
        _begin(name, name, key.public_key(), CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.NameConstraints([x509.DNSName(_ROOT)], None), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .sign(key, hashes.SHA256()))
    own_file(key_path, _key_text(key), "root")
    own_file(path, _text(signed), "root", 0o644)
    return signed, key


def _sign_leaf(names: list[str], authority: x509.Certificate, signer: ec.EllipticCurvePrivateKey
               ) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP256R1())
    alternatives = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    signed = (
        _begin(_named(names[0]), authority.subject, key.public_key(), LEAF_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(alternatives, critical=False)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(identifier, critical=False)
        .sign(signer, hashes.SHA256()))
    return key, signed


def _begin(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey,
           days: int) -> x509.CertificateBuilder:
    """What both kinds of certificates have; from an hour ago, for clocks that are late."""
    begins = _now() - _DAY / 24
    return (
        x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins).not_valid_after(begins + days * _DAY)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False))


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs, key_cert_sign=signs, crl_sign=signs, content_commitment=False,
        key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False,
        decipher_only=False)


def _named(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _text(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_text(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption()).decode()


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.timezone.utc)
