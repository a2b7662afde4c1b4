"""Finds the certificates of host names that apps have besides their slugs: `<any>.pem`, with its
chain, and `<any>.key` beside it, in SVC_CERTIFICATES_DIR.

A pair that cannot be used is left out with a line that says so; the others serve.
"""
import ssl
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509

from config.host_name_syntax import is_host_name


@dataclass(frozen=True)
class Certificate:
    """Files of a certificate, and the names that it is for."""

    names: tuple[str, ...]
    certificate: Path
    key: Path


def find_certificates(directory: Path, own_domains: Collection[str]) -> list[Certificate]:
    """The usable certificates of a directory, each name once. Names below our own domains are left
    out: these have a certificate, and slugs."""
    found, taken = [], set[str]()
    for path in sorted(directory.glob("*.pem")):
        key = path.with_suffix(".key")
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(path, key)
            names = tuple(name for name in _names_of(path) if name not in taken
                          and not any(name.endswith(f".{own}") for own in own_domains))
        except (OSError, ValueError, x509.ExtensionNotFound) as error:
            print(f"{path} is not used: {error}", file=sys.stderr)
            continue
        if names:
            taken |= set(names)
            found.append(Certificate(names, path, key))
    return found


def _names_of(path: Path) -> Iterator[str]:
    leaf = x509.load_pem_x509_certificate(path.read_bytes())
    held = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    for name in map(str.lower, held.get_values_for_type(x509.DNSName)):
        # nothing else: with a name that means nothing to nginx it would not start
        if is_host_name(f"any{name[1:]}" if name.startswith("*.") else name):
            yield name
