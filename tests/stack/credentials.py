"""Credentials of every kind, good and bad, for two newcomers on a service: real processes, or both
hosts in here."""
import base64
import hashlib
import hmac
import json
import time
from datetime import datetime, timedelta, timezone
from typing import Any, Protocol

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from services.accounts.tokens import SigningKey

Headers = dict[str, str]


class Service(Protocol):
    """A running service, as the maker of credentials needs it."""

    issuer: str

    def send(self, host: str, method: str, path: str, headers: Headers,
             body: Any = None) -> tuple[int, Any, str]:
        """Status, JSON body and Set-Cookie of the answer."""

    def make_user(self, email: str, password: str) -> None:
        """Make an account that may create sandboxes."""

    def mint(self, name: str) -> tuple[str, str]:
        """A service token: jti and text."""

    def mint_of(self, email: str) -> str:
        """A service token that acts as this account."""

    def signing_key(self) -> SigningKey:
        """The key that signs now."""


def bearer(secret: str) -> Headers:
    return {"Authorization": f"Bearer {secret}"}


class Newcomer:
    """A fresh account with a session, a user token and an API key."""

    def __init__(self, service: Service, email: str) -> None:
        self.service, self.email, self.password = service, email, "correct horse battery"
        service.make_user(email, self.password)
        self.session, body = self.sign_in()
        self.id: str = body["id"]
        token = service.send("identity", "POST", "/token", self.session, {"appId": "tests"})[1]
        self.jwt: str = token["token"]
        self.key, self.key_id = self.make_key("own")

    def sign_in(self) -> tuple[Headers, Any]:
        """A new session: its cookie header and the answer's body."""
        body = {"email": self.email, "password": self.password}
        status, answer, cookies = self.service.send("identity", "POST", "/login", {}, body)
        assert status == 200, answer
        return {"Cookie": cookies.split(";")[0]}, answer

    def make_key(self, name: str, **more: Any) -> tuple[str, str]:
        status, answer, _ = self.service.send("api", "POST", "/v1/api-keys", bearer(self.jwt),
                                              {"name": name, **more})
        assert status == 201, answer
        return answer["key"], answer["apiKey"]["id"]


def make_all(service: Service, owner: Newcomer, other: Newcomer) -> dict[str, Headers]:
    """Headers for every kind of the authorisation table."""
    jti, service_token = service.mint("tests")
    _, admin_token = service.mint("admin")
    revoked_jti, revoked_token = service.mint("revoked")
    status, _, _ = service.send("identity", "POST", "/admin/service-token/revoke",
                                bearer(admin_token), {"jti": revoked_jti})
    assert status == 200
    owners_token = bearer(service.mint_of(owner.email))
    ended, _ = owner.sign_in()
    service.send("identity", "POST", "/logout", ended)
    behalf = {
        name: {"X-On-Behalf-Of": user_id}
        for name, user_id in (("owner", owner.id), ("other", other.id), ("nobody", "usr_nobody"))
    }
    return {
        **_bad_keys(owner),
        **{kind: bearer(token) for kind, token in forged(service, owner, other, jti).items()},
        "none": {},
        "another scheme": {"Authorization": "Basic dXNlcjpwYXNz"},
        "malformed": bearer("nonsense"),
        "revoked service token": bearer(revoked_token) | behalf["owner"],
        "session": owner.session,
        "ended session": ended,
        "own key": bearer(owner.key),
        "other's key": bearer(other.key),
        "own user token": bearer(owner.jwt),
        "other's user token": bearer(other.jwt),
        "service": bearer(service_token),
        **{
            f"service for {name}": bearer(service_token) | header for name, header in behalf.items()
        },
        "service token of owner": owners_token,
        "service token of owner for owner": owners_token | behalf["owner"],
        "service token of owner for other": owners_token | behalf["other"],
        "admin": bearer(admin_token),
        "admin for owner": bearer(admin_token) | behalf["owner"],
    }


def _bad_keys(owner: Newcomer) -> dict[str, Headers]:
    soon = datetime.now(timezone.utc) + timedelta(seconds=6)
    expired, _ = owner.make_key("expires", expiresAt=soon.isoformat())
    revoked, revoked_id = owner.make_key("revoked")
    status, _, _ = owner.service.send("api", "DELETE", f"/v1/api-keys/{revoked_id}",
                                      bearer(owner.jwt))
    assert status == 200
    while datetime.now(timezone.utc) <= soon:
        time.sleep(0.1)
    return {"unknown key": bearer("svc_sk_" + "A" * 43), "revoked key": bearer(revoked),
            "expired key": bearer(expired)}


def forged(service: Service, owner: Newcomer, other: Newcomer, jti: str) -> dict[str, str]:
    """Tokens that differ from a good one in one respect each; `jti` is that of a good service
    token."""
    signing, present = service.signing_key(), int(time.time())
    user = {
        "iss": service.issuer, "aud": "svc", "sub": owner.id, "appId": "x", "iat": present,
        "exp": present + 3600, "jti": "forged"
    }
    infra = user | {"aud": "svc-infra", "sub": "svc:tests", "jti": jti}
    stranger = ed25519.Ed25519PrivateKey.generate()
    header, body, signature = owner.jwt.split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    return {
        "expired user token": sign(signing, user | {"iat": present - 1000, "exp": present - 100}),
        "expired service token": sign(signing,
                                      infra | {"iat": present - 1000, "exp": present - 100}),
        "wrong audience": sign(signing, user | {"aud": "svc-other"}),
        "both audiences": sign(signing, user | {"aud": ["svc", "svc-infra"]}),
        "wrong issuer": sign(signing, user | {"iss": "https://elsewhere.example.test"}),
        "token of nobody": sign(signing, user | {"sub": "usr_nobody"}),
        "no algorithm": unsigned(user, signing.kid),
        "key confusion": confused(user, signing),
        "unknown signer": jwt.encode(user, stranger, "EdDSA", headers={"kid": "unknown"}),
        "foreign signature": jwt.encode(user, stranger, "EdDSA", headers={"kid": signing.kid}),
        "tampered": f"{header}.{_part(claims | {'sub': other.id})}.{signature}",
        **{
            f"without {claim}": sign(signing, {
                name: value
                for name, value in user.items() if name != claim
            })
            for claim in ("exp", "iat", "iss", "aud", "sub", "jti")
        },
    }


def sign(signing: SigningKey, claims: dict[str, Any]) -> str:
    """Signed by hand, since a library refuses to encode some of these."""
    text = f"{_part({'alg': signing.algorithm, 'typ': 'JWT', 'kid': signing.kid})}.{_part(claims)}"
    return f"{text}.{_encode(signing.private.sign(text.encode()))}"


def unsigned(claims: dict[str, Any], kid: str) -> str:
    return f"{_part({'alg': 'none', 'typ': 'JWT', 'kid': kid})}.{_part(claims)}."


def confused(claims: dict[str, Any], signing: SigningKey) -> str:
    """The public key, which everybody has, used as the secret of an HMAC."""
    public = signing.private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    text = f"{_part({'alg': 'HS256', 'typ': 'JWT', 'kid': signing.kid})}.{_part(claims)}"
    return f"{text}.{_encode(hmac.new(public, text.encode(), hashlib.sha256).digest())}"


def _part(value: Any) -> str:
    return _encode(json.dumps(value).encode())


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
