"""A certificate authority made with openssl, and the certificate of a server on 127.0.0.1."""
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Authority:
    """Files of one authority and of the server that it vouches for."""

    ca: Path
    certificate: Path
    key: Path


def make_authority(directory: Path, name: str = "127.0.0.1") -> Authority:
    """A new authority, whose server's certificate is for `name`, an address."""
    directory.mkdir(parents=True, exist_ok=True)
    made = Authority(directory / "ca.pem", directory / "server.pem", directory / "server.key")
    _openssl(directory, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
             "-nodes", "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=tests",
             "-addext", "keyUsage=critical,keyCertSign")
    _openssl(directory, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
             "-keyout", "server.key", "-out", "server.csr", "-subj", f"/CN={name}")
    (directory / "names").write_text(f"subjectAltName=IP:{name}\n")
    _openssl(directory, "x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
             "-CAcreateserial", "-days", "2", "-extfile", "names", "-out", "server.pem")
    return made


def _openssl(directory: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True)
