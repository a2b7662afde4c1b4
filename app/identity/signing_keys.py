"""The signing keys of the identity host: a directory with a private and a public half per key id.

A key goes through three stages, so that no verifier ever meets a token whose key it cannot know:

1. published: in the JWKS, not signing yet (`add` with a start in the future); 2. signing: the
newest one whose start has come; 3. verifying: an older one, kept until the last token it signed has
ended, then removed.

Only identity hosts have this directory. All other processes fetch the public halves
(`app.http.identity_mirror`).
"""
import base64
import calendar
import contextlib
import fcntl
import hashlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from config import owned_files
from config.settings import SettingsError
from services.accounts.tokens import SigningKey, VerificationKey

_PRIVATE, _PUBLIC, _START = ".private.pem", ".public.pem", ".start"
# An unknown key id makes us look at the directory again, but not for every bad token.
_LOOK_EVERY_S = 1.0


@dataclass(frozen=True)
class KeyState:
    """A key as an operator sees it: `stage` is `published`, `signing` or `verifying`."""

    kid: str
    algorithm: str
    stage: str
    starts_at: datetime


class KeyDirectory:
    """The keys in one directory. Safe to share between threads, and between processes that change
    it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._keys: dict[str, VerificationKey] = {}
        self._looked_at = float("-inf")

    def find(self, kid: str) -> VerificationKey | None:
        """The public key of this id; a key added or removed meanwhile is noticed within a
        second."""
        with self._lock:
            if time.monotonic() - self._looked_at >= _LOOK_EVERY_S:
                self._keys = {key.kid: key for key in self.list_public()}
                self._looked_at = time.monotonic()
            return self._keys.get(kid)

    def list_public(self) -> list[VerificationKey]:
        """Every public key, oldest first."""
        keys = []
        for path in sorted(self._path.glob(f"*{_PUBLIC}")):
            with contextlib.suppress(FileNotFoundError):  # removed since it was listed
                keys.append(_read_public(path))
        return keys

    def get_signing(self) -> SigningKey:
        """The key that signs at this moment; raises SettingsError if there is none."""
        kid = self._signing_kid(self._kids())
        if kid is None:
            raise SettingsError(
                f"There is no signing key in {self._path}. The host of `identity` has them; on that"
                " one, run: bin/svc-admin keys ensure"
            )
        private = serialization.load_pem_private_key((self._path / f"{kid}{_PRIVATE}").read_bytes(),
                                                     password=None)
        return SigningKey(kid, _algorithm(private), private)

    def list_states(self) -> list[KeyState]:
        """Every key with its stage, oldest first."""
        signing = self._signing_kid(self._kids())
        states = []
        for key in self.list_public():
            later = signing is not None and key.kid > signing
            stage = "signing" if key.kid == signing else "published" if later else "verifying"
            starts_at = datetime.fromtimestamp(self._starts_at(key.kid), timezone.utc)
            states.append(KeyState(key.kid, key.algorithm, stage, starts_at))
        return states

    def ensure(self, algorithm: str) -> str:
        """Make a key, which signs at once, unless there is one; returns the id of the key that
        signs."""
        with self._changing():
            if not self._kids():
                self._add(algorithm, None)
        return self.get_signing().kid

    def add(self, algorithm: str, *, signs_in_s: float = 0.0) -> str:
        """Make a new key, which signs `signs_in_s` seconds from now; returns its id. Ids sort by
        age."""
        with self._changing():
            return self._add(algorithm, time.time() + signs_in_s)

    def remove(self, kid: str) -> None:
        """Remove both halves of a key: nothing it signed verifies from now on."""
        with self._changing():
            # The private half first: nothing may be signed that nobody could verify.
            for suffix in (_PRIVATE, _PUBLIC, _START):
                (self._path / f"{kid}{suffix}").unlink(missing_ok=True)

    def _add(self, algorithm: str, starts_at: float | None) -> str:
        private = _generate(algorithm)
        public = private.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        kid = self._new_kid(public)
        secret = private.private_bytes(serialization.Encoding.PEM,
                                       serialization.PrivateFormat.PKCS8,
                                       serialization.NoEncryption())
        if starts_at is not None:
            _write(self._path / f"{kid}{_START}", f"{starts_at:.3f}\n".encode(), 0o644)
        # The public half first: nothing may be signed that nobody could verify.
        _write(self._path / f"{kid}{_PUBLIC}", public, 0o644)
        _write(self._path / f"{kid}{_PRIVATE}", secret, 0o600)
        return kid

    def _new_kid(self, public: bytes) -> str:
        digest = base64.b32encode(hashlib.sha256(public).digest())[:8].decode().lower()
        newest = max(self._kids(), default="")
        while True:
            present = time.time()
            second = time.strftime("%Y%m%d%H%M%S", time.gmtime(present))
            kid = f"{second}{int(present * 1000) % 1000:03d}-{digest}"
            if kid > newest:
                return kid
            time.sleep(0.001)

    def _kids(self) -> list[str]:
        return sorted(path.name.removesuffix(_PRIVATE) for path in self._path.glob(f"*{_PRIVATE}"))

    def _signing_kid(self, kids: list[str]) -> str | None:
        present = time.time()
        started = [kid for kid in kids if self._starts_at(kid) <= present]
        # A lone key whose start has not come signs all the same: there is nothing better.
        return started[-1] if started else kids[0] if kids else None

    def _starts_at(self, kid: str) -> float:
        try:
            return float((self._path / f"{kid}{_START}").read_text())
        except (FileNotFoundError, ValueError):
            pass
        try:
            return float(calendar.timegm(time.strptime(kid[:14], "%Y%m%d%H%M%S")))
        except ValueError:  # not a name of ours: somebody brought a key along
            return 0.0

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        self._path.mkdir(mode=0o755, parents=True, exist_ok=True)
        # The directory itself is locked, for which root makes no file in it.
        with owned_files.opened(self._path) as directory:
            fcntl.flock(directory, fcntl.LOCK_EX)
            yield


def _generate(algorithm: str) -> Any:
    if algorithm == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    if algorithm == "ES256":
        return ec.generate_private_key(ec.SECP256R1())
    raise SettingsError(f"SVC_JWT_ALGORITHMS: {algorithm} is not one of EdDSA, ES256")


def _algorithm(key: Any) -> str:
    return "EdDSA" if isinstance(key,
                                 (ed25519.Ed25519PrivateKey, ed25519.Ed25519PublicKey)) else "ES256"


def _read_public(path: Path) -> VerificationKey:
    public = serialization.load_pem_public_key(path.read_bytes())
    return VerificationKey(path.name.removesuffix(_PUBLIC), _algorithm(public), public)


def _write(path: Path, content: bytes, mode: int) -> None:
    """Also as root, for an operator: it is the identity host's, whose directory it is in."""
    owned_files.write(path, content, mode, durable=True)
