"""The signing keys: a directory with a private and a public half per key id.

`python -m app.identity.keys ensure` makes the first one. The newest key signs, every key verifies, so a key is
rotated by adding one and removing the old one when the last token it signed has ended. Processes that only verify
read the public halves.
"""
import base64
import fcntl
import hashlib
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from jwt.algorithms import ECAlgorithm, OKPAlgorithm

from config.settings import SettingsError
from services.tokens import SigningKey, VerificationKey

_PRIVATE, _PUBLIC = ".private.pem", ".public.pem"
# An unknown key id makes us look at the directory again, but not for every bad token.
_LOOK_EVERY_S = 1.0


class KeyDirectory:
    """The keys in one directory; implements `services.tokens.VerificationKeys`. Safe to share between threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._keys: dict[str, VerificationKey] = {}
        self._looked_at = float("-inf")

    def find(self, kid: str) -> VerificationKey | None:
        """The public key of this id; a key added or removed meanwhile is noticed within a second."""
        with self._lock:
            if time.monotonic() - self._looked_at >= _LOOK_EVERY_S:
                self._keys = {key.kid: key for key in self.list_public()}
                self._looked_at = time.monotonic()
            return self._keys.get(kid)

    def list_public(self) -> list[VerificationKey]:
        """Every public key, oldest first."""
        return [_read_public(path) for path in sorted(self._path.glob(f"*{_PUBLIC}"))]

    def get_signing(self) -> SigningKey:
        """The newest private key; raises SettingsError if there is none."""
        paths = sorted(self._path.glob(f"*{_PRIVATE}"))
        if not paths:
            raise SettingsError(f"There is no signing key in {self._path}; run: python -m app.identity.keys ensure")
        private = serialization.load_pem_private_key(paths[-1].read_bytes(), password=None)
        kid = paths[-1].name.removesuffix(_PRIVATE)
        return SigningKey(kid, _algorithm(private), private)

    def ensure(self, algorithm: str) -> str:
        """Make a key unless there is one; returns the id of the key that signs. May run twice at once."""
        self._path.mkdir(mode=0o755, parents=True, exist_ok=True)
        with open(self._path / ".lock", "w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not any(self._path.glob(f"*{_PRIVATE}")):
                self.add(algorithm)
        return self.get_signing().kid

    def add(self, algorithm: str) -> str:
        """Make a new key, which signs from now on; returns its id, which starts with the time: ids sort by age."""
        private = _generate(algorithm)
        public = private.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        digest = base64.b32encode(hashlib.sha256(public).digest())[:8].decode().lower()
        kid = f"{time.strftime('%Y%m%d%H%M%S', time.gmtime())}-{digest}"
        secret = private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        # The public half first: nothing may be signed that nobody could verify.
        _write(self._path / f"{kid}{_PUBLIC}", public, 0o644)
        _write(self._path / f"{kid}{_PRIVATE}", secret, 0o600)
        return kid


def as_jwk(key: VerificationKey) -> Mapping[str, str]:
    """The public key as JSON Web Key."""
    codec: Any = OKPAlgorithm if key.algorithm == "EdDSA" else ECAlgorithm
    return {**codec.to_jwk(key.public, as_dict=True), "kid": key.kid, "alg": key.algorithm, "use": "sig"}


def _generate(algorithm: str) -> Any:
    if algorithm == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    if algorithm == "ES256":
        return ec.generate_private_key(ec.SECP256R1())
    raise SettingsError(f"SVC_JWT_ALGORITHMS: {algorithm} is not one of EdDSA, ES256")


def _algorithm(key: Any) -> str:
    return "EdDSA" if isinstance(key, (ed25519.Ed25519PrivateKey, ed25519.Ed25519PublicKey)) else "ES256"


def _read_public(path: Path) -> VerificationKey:
    public = serialization.load_pem_public_key(path.read_bytes())
    return VerificationKey(path.name.removesuffix(_PUBLIC), _algorithm(public), public)


def _write(path: Path, content: bytes, mode: int) -> None:
    draft = path.with_suffix(".draft")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    os.chmod(draft, mode)
    draft.replace(path)
