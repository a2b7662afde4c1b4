"""Seals what is kept of an app's variables: who has the rows alone can neither read nor exchange
them.

The key is made of `SVC_VARIABLES_SECRET`, which may be several, newest first and separated by
commas: the first seals, each opens. A sealed value belongs to its place: in the row of another app
or of another name it does not open.
"""
import secrets

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from config.settings import Settings
from services.errors import Unavailable

_PURPOSE = b"svc app variables"
_KEY_BYTES, _NONCE_BYTES = 32, 12


class SealedForGood(Unavailable):
    """The secret that it was sealed with is not there any more."""


def seal(settings: Settings, place: str, value: str) -> bytes:
    """`value`, sealed for `place`; raises Unavailable if there is no secret."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    sealed = _keys(settings)[0].encrypt(nonce, value.encode(), place.encode())
    return nonce + sealed


def unseal(settings: Settings, place: str, sealed: bytes) -> str:
    """What was sealed for `place`; raises SealedForGood if no secret opens it, Unavailable if there
    is none."""
    nonce, content = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
    for key in _keys(settings):
        try:
            return key.decrypt(nonce, content, place.encode()).decode()
        except InvalidTag:
            continue
    raise SealedForGood(f"What is kept for {place} was sealed with a secret that this installation"
                        " does not have any more.")


def _keys(settings: Settings) -> list[AESGCM]:
    told = [secret.strip() for secret in settings.variables_secret.split(",") if secret.strip()]
    if not told:
        raise Unavailable("This installation keeps no variables of apps: SVC_VARIABLES_SECRET is"
                          " not set.")
    return [AESGCM(HKDF(SHA256(), _KEY_BYTES, None, _PURPOSE).derive(secret.encode()))
            for secret in told]
