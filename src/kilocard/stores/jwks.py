"""A JSON Web Key Set (RFC 7517) as keys that can check signatures. The only file that knows PyJWT (extra `oidc`)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import jwt
from jwt import algorithms

from kilocard.core.errors import UsageError
from kilocard.tenancy.claims import Header, refused

#: bits; RSA keys below this can't be trusted (NIST SP 800-131A)
SHORTEST_RSA = 2048
_RSA = frozenset(["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"])
#: (kty, crv) → algorithms that such a key can check
_FITS: dict[tuple[Any, Any], frozenset[str]] = {
    ("RSA", None): _RSA,
    ("EC", "P-256"): frozenset({"ES256"}),
    ("EC", "P-384"): frozenset({"ES384"}),
    ("EC", "P-521"): frozenset({"ES512"}),
    ("OKP", "Ed25519"): frozenset({"EdDSA"}),
    ("OKP", "Ed448"): frozenset({"EdDSA"}),
}
_jws = jwt.PyJWS()


class VerifyingKey(NamedTuple):
    """A public key of the issuer."""

    key_id: str | None
    algorithms: frozenset[str]
    key: Any


def need_cryptography() -> None:
    """Raises UsageError where PyJWT has nothing to check signatures with."""
    if not algorithms.has_crypto:
        raise UsageError("gateway.oidc needs the package cryptography: pip install 'kilocard[oidc]'")


def read_key_set(body: bytes) -> tuple[VerifyingKey, ...]:
    """The keys that can be used; others (for encryption, with secrets, too short, unknown) are left out.

    Raises ValueError where it is no key set, or nothing of it can be used.
    """
    document = json.loads(body)
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise ValueError("it is no JSON Web Key Set")
    keys = tuple(key for one in listed if isinstance(one, dict) and (key := _read(one)) is not None)
    if not keys:
        raise ValueError(f"none of its {len(listed)} keys can check signatures")
    return keys


def _read(jwk: dict[str, Any]) -> VerifyingKey | None:
    described = kind, curve, key_id, algorithm = tuple(jwk.get(field) for field in ("kty", "crv", "kid", "alg"))
    if not all(isinstance(field, str | None) for field in described):
        return None
    fits = _FITS.get((kind, None if kind == "RSA" else curve))
    if fits is None or jwk.get("use", "sig") != "sig":
        return None
    if algorithm is not None:
        fits &= {algorithm}
    if not fits:
        return None
    public = {field: value for field, value in jwk.items() if field != "d"}  # an issuer that shows its private key
    try:
        key = jwt.PyJWK(public, algorithm=min(fits)).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    if kind == "RSA" and key.key_size < SHORTEST_RSA:
        return None
    return VerifyingKey(key_id, fits, key)


def choose(keys: Sequence[VerifyingKey], header: Header) -> VerifyingKey | None:
    """The key that a token's header means; None where the set has no such one. Raises Unauthorized.

    A key checks only algorithms of its own kind, whatever the header says.
    """
    if header.key_id is not None:
        keys = [key for key in keys if key.key_id == header.key_id]
        if not keys:
            return None
    fitting = [key for key in keys if header.algorithm in key.algorithms]
    if not fitting and header.key_id is not None:
        raise refused("its key is not for that kind of signature")
    if len(fitting) > 1:
        raise refused("it does not say which of several keys signed it")
    return fitting[0] if fitting else None


def signed_claims(token: bytes, header: Header, key: VerifyingKey) -> dict[str, Any]:
    """The claims of a token whose signature is right. Raises Unauthorized."""
    try:
        claims = json.loads(_jws.decode(token, key.key, algorithms=[header.algorithm]))
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        raise refused("its signature is wrong") from None
    if not isinstance(claims, dict):
        raise refused("it has no claims")
    return claims
