"""Public keys as JSON Web Keys (RFC 7517): the identity host publishes them so, other processes
read them."""
from collections.abc import Mapping
from typing import Any

from jwt.algorithms import ECAlgorithm, OKPAlgorithm

from services.accounts.tokens import VerificationKey


def as_jwk(key: VerificationKey) -> Mapping[str, str]:
    """The public key as JSON Web Key."""
    return {
        **_codec(key.algorithm).to_jwk(key.public, as_dict=True), "kid": key.kid,
        "alg": key.algorithm, "use": "sig"
    }


def from_jwk(jwk: Mapping[str, Any]) -> VerificationKey:
    """The reverse; raises ValueError for a key that is none of ours, a private one included."""
    kid, algorithm, kind = jwk.get("kid"), jwk.get("alg"), jwk.get("kty")
    if not isinstance(kid, str) or (algorithm, kind) not in {("EdDSA", "OKP"),
                                                             ("ES256", "EC")} or "d" in jwk:
        raise ValueError("not a public key of a kind that we use")
    return VerificationKey(kid, str(algorithm), _codec(str(algorithm)).from_jwk(dict(jwk)))


def _codec(algorithm: str) -> Any:
    return OKPAlgorithm if algorithm == "EdDSA" else ECAlgorithm
