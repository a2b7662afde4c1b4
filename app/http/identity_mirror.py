"""The identity host's public keys and list of revoked tokens, as every process that verifies tokens
keeps them.

1. A thread fetches both from SVC_AUTH_URL every SVC_IDENTITY_POLL_S seconds (contract, Service
tokens 4), sooner until it has them at all. 2. A token that names an unknown key makes it fetch at
once, so that a new key is known as soon as it signs, but not more often than every REFETCH_S
seconds: anybody can make up key ids. 3. While the identity host is away what was fetched last goes
on being used, however old, and every failed fetch is an alarm in the log. 4. A process that never
reached it cannot judge any token and says so: 503, not 401. 5. Few wait for an identity host that
does not answer, or strangers with made-up key ids would hold all threads.
"""
import json
import logging
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx

from config.settings import Settings
from services.accounts.json_web_keys import from_jwk
from services.accounts.tokens import VerificationKey
from services.errors import Unavailable

log = logging.getLogger(__name__)

REFETCH_S = 1.0
_IMPATIENT_S = 0.5
_TIMEOUT_S = 3.0
_WAIT_S = 2.0
_WAITING_MOST = 4
_MAX_BYTES = 4 * 1024 * 1024


class IdentityMirror:
    """A copy of what the identity host publishes; implements `services.accounts.tokens.Authority`.
    Safe between threads."""

    def __init__(self, settings: Settings) -> None:
        self._url = settings.auth_url.rstrip("/")
        self._poll_s = settings.identity_poll_s
        self._keys: dict[str, VerificationKey] | None = None
        self._revoked: frozenset[str] | None = None
        self._complete_at = time.monotonic()
        self._asked_at = float("-inf")
        self._wanted = threading.Event()
        self._turn = threading.Condition()
        self._turns = self._waiting = 0
        self._fetching = False
        self._started = False
        self._away = True

    def start(self) -> None:
        """Begin to fetch, in a thread of this process; again does nothing."""
        with self._turn:
            if not self._started:
                self._started = True
                threading.Thread(target=self._run, name="identity-mirror", daemon=True).start()

    def find(self, kid: str) -> VerificationKey | None:
        """The public key of this id, or None; raises Unavailable while nothing was ever fetched."""
        if self._keys is None or self._revoked is None or kid not in self._keys:
            self._refresh()
        if self._keys is None or self._revoked is None:
            raise Unavailable("The identity host does not answer, so tokens cannot be checked.",
                              retry_after_s=2)
        return self._keys.get(kid)

    def is_revoked(self, jti: str) -> bool:
        """True if this token was on the list that was fetched last."""
        return jti in (self._revoked or ())

    def _refresh(self) -> None:
        """Return when a fetch that began after this call, or one under way, has ended; at once if
        it is too soon, or enough callers wait for a host that was away."""
        self.start()
        with self._turn:
            rest_s = REFETCH_S if self._keys is not None else _IMPATIENT_S
            if time.monotonic() - self._asked_at >= rest_s:
                self._asked_at = time.monotonic()
                self._wanted.set()
            # What is under way may have begun before the key was there; a wanted fetch begins after
            # it.
            last = self._turns + (1 if self._fetching else 0) + (1 if self._wanted.is_set() else 0)
            if self._away and self._keys is not None and self._waiting >= _WAITING_MOST:
                return
            self._waiting += 1
            try:
                self._turn.wait_for(lambda: self._turns >= last, timeout=_WAIT_S)
            finally:
                self._waiting -= 1

    def _run(self) -> None:
        # The authorities take 6 MB in a fork of the supervisor, so plain HTTP has a context that
        # trusts nobody.
        secure = self._url.lower().startswith("https:")
        tls = True if secure else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        with httpx.Client(timeout=_TIMEOUT_S, headers={"Accept": "application/json"},
                          verify=tls) as client:
            while True:
                with self._turn:
                    self._wanted.clear()
                    self._fetching = True
                self._fetch(client)
                with self._turn:
                    self._fetching = False
                    self._turns += 1
                    self._turn.notify_all()
                known = self._keys is not None and self._revoked is not None
                self._wanted.wait(self._poll_s if known else min(_IMPATIENT_S, self._poll_s))

    def _fetch(self, client: httpx.Client) -> None:
        age_s = time.monotonic() - self._complete_at
        try:
            self._keys = self._get(client, "/.well-known/jwks.json", _read_keys)
            self._revoked = self._get(client, "/tokens/revoked", _read_revoked)
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError, RecursionError) as error:
            log.error(
                "ALARM: the identity host does not answer; tokens are judged by what was known %.0f"
                " s ago",
                age_s, extra={"url": self._url, "reason": f"{type(error).__name__}: {error}"[:200]},
            )
            self._away = True
            return
        if self._away:
            log.info("the identity host answers", extra={"url": self._url, "keys": len(self._keys)})
        self._away, self._complete_at = False, time.monotonic()

    def _get(self, client: httpx.Client, path: str, read: Callable[[Any], Any]) -> Any:
        deadline, content = time.monotonic() + 2 * _TIMEOUT_S, bytearray()
        with client.stream("GET", self._url + path) as answer:
            answer.raise_for_status()
            for chunk in answer.iter_bytes():
                content += chunk
                if len(content) > _MAX_BYTES or time.monotonic() > deadline:
                    raise ValueError(f"{path} is too large or too slow")
        return read(json.loads(content))


def _read_keys(body: Any) -> dict[str, VerificationKey]:
    if not isinstance(body, dict) or not isinstance(body.get("keys"), list):
        raise ValueError("not a key set")
    keys: dict[str, VerificationKey] = {}
    for jwk in body["keys"]:
        try:
            key = from_jwk(jwk)
        except Exception as error:  # one key that we cannot read must not cost us the others
            log.warning("a published key was left out (%s)", type(error).__name__)
            continue
        keys[key.kid] = key
    if not keys:
        raise ValueError("a key set without a usable key")
    return keys


def _read_revoked(body: Any) -> frozenset[str]:
    jtis = body.get("jtis") if isinstance(body, dict) else None
    if not isinstance(jtis, list) or not all(isinstance(jti, str) for jti in jtis):
        raise ValueError("not a list of revoked tokens")
    return frozenset(jtis)
