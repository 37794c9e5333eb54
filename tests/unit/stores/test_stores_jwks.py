"""Key sets and signatures: which keys are used for what, and every known way to forge a token."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from functools import cache
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from kilocard.core.errors import Unauthorized
from kilocard.stores.jwks import choose, read_key_set, signed_claims
from kilocard.tenancy.claims import Header, read_header

CLAIMS = {"sub": "somebody"}


@cache
def private(kind: str) -> Any:
    """One key pair of each kind for all tests: RSA takes its time."""
    match kind:
        case "rsa":
            return rsa.generate_private_key(public_exponent=65537, key_size=2048)
        case "short":
            return rsa.generate_private_key(public_exponent=65537, key_size=1024)
        case "ed":
            return ed25519.Ed25519PrivateKey.generate()
    return ec.generate_private_key({"p256": ec.SECP256R1(), "p384": ec.SECP384R1(), "p521": ec.SECP521R1()}[kind])


def jwk(kind: str, **more: Any) -> dict[str, Any]:
    public = private(kind).public_key()
    to_jwk = (
        RSAAlgorithm.to_jwk if kind in ("rsa", "short") else OKPAlgorithm.to_jwk if kind == "ed" else ECAlgorithm.to_jwk
    )
    return json.loads(to_jwk(public)) | {"kid": kind} | more


def key_set(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": keys}).encode()


def signed(kind: str, algorithm: str, **header: Any) -> bytes:
    return jwt.encode(CLAIMS, private(kind), algorithm, headers={"kid": kind} | header).encode()


def claims_of(token: bytes, body: bytes) -> dict[str, Any] | None:
    header = read_header(token)
    key = choose(read_key_set(body), header)
    return None if key is None else signed_claims(token, header, key)


ALL = key_set(*(jwk(kind) for kind in ("rsa", "p256", "p384", "p521", "ed")))


@pytest.mark.parametrize(
    ("kind", "algorithm"),
    [
        *(("rsa", name) for name in ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")),
        ("p256", "ES256"),
        ("p384", "ES384"),
        ("p521", "ES512"),
        ("ed", "EdDSA"),
    ],
)
def test_every_algorithm_with_its_key(kind: str, algorithm: str) -> None:
    good = signed(kind, algorithm)
    assert claims_of(good, ALL) == CLAIMS
    head, payload, signature = good.split(b".")
    other = base64.urlsafe_b64encode(b'{"sub":"root"}').rstrip(b"=")
    for forged in (
        b".".join([head, other, signature]),
        b".".join([head, payload, signature[:-8] + b"AAAAAAAA"]),
        b".".join([head, payload, b""]),
        b".".join([head, payload, signature * 3]),
    ):
        with pytest.raises(Unauthorized, match="signature is wrong"):
            claims_of(forged, ALL)


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_a_public_key_is_never_a_shared_secret(algorithm: str) -> None:
    """The classic forgery: the token is signed with HMAC, and the secret is the issuer's public key."""
    pem = (
        private("rsa")
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    head = base64.urlsafe_b64encode(json.dumps({"alg": algorithm, "kid": "rsa"}).encode()).rstrip(b"=")
    text = head + b"." + base64.urlsafe_b64encode(b'{"sub":"root"}').rstrip(b"=")
    digest = hmac.new(pem, text, getattr(hashlib, "sha" + algorithm[2:])).digest()
    forged = text + b"." + base64.urlsafe_b64encode(digest).rstrip(b"=")
    with pytest.raises(Unauthorized, match="signature has to be one of"):
        claims_of(forged, ALL)


def test_a_token_without_a_signature_is_refused() -> None:
    for algorithm in ("none", "None", "nOnE"):
        head = base64.urlsafe_b64encode(json.dumps({"alg": algorithm, "kid": "rsa"}).encode()).rstrip(b"=")
        with pytest.raises(Unauthorized):
            claims_of(head + b"." + signed("rsa", "RS256").split(b".")[1] + b".", ALL)


@pytest.mark.parametrize(
    ("key_id", "algorithm"),
    [("rsa", "ES256"), ("p256", "RS256"), ("p256", "ES384"), ("p384", "ES256"), ("ed", "PS256"), ("rsa", "EdDSA")],
)
def test_a_key_checks_only_signatures_of_its_own_kind(key_id: str, algorithm: str) -> None:
    with pytest.raises(Unauthorized, match="not for that kind"):
        choose(read_key_set(ALL), Header(algorithm, key_id))


def test_a_key_that_names_its_algorithm_checks_no_other() -> None:
    body = key_set(jwk("rsa", alg="RS256"))
    assert claims_of(signed("rsa", "RS256"), body) == CLAIMS
    with pytest.raises(Unauthorized, match="not for that kind"):
        claims_of(signed("rsa", "PS256"), body)
    with pytest.raises(ValueError, match="none of its 1 keys"):
        read_key_set(key_set(jwk("rsa", alg="ES256")))


def test_the_signature_of_another_key_of_the_set_does_not_count() -> None:
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    forged = jwt.encode(CLAIMS, other, "RS256", headers={"kid": "rsa"}).encode()
    with pytest.raises(Unauthorized, match="signature is wrong"):
        claims_of(forged, ALL)


def test_keys_in_the_token_itself_are_not_looked_at() -> None:
    """`jwk`, `jku` and `x5u` headers would let a forger bring the key along."""
    other = ec.generate_private_key(ec.SECP256R1())
    brought = {"jwk": json.loads(ECAlgorithm.to_jwk(other.public_key())), "jku": "http://127.0.0.1:9/keys"}
    forged = jwt.encode(CLAIMS, other, "ES256", headers={"kid": "p256", **brought}).encode()
    with pytest.raises(Unauthorized, match="signature is wrong"):
        claims_of(forged, ALL)


def test_without_a_key_id_the_only_fitting_key_is_meant() -> None:
    token = jwt.encode(CLAIMS, private("p256"), "ES256").encode()
    assert claims_of(token, key_set(jwk("rsa"), jwk("p256"))) == CLAIMS
    assert claims_of(token, key_set(jwk("rsa"))) is None
    with pytest.raises(Unauthorized, match="which of several keys"):
        claims_of(token, key_set(jwk("p256"), jwk("p256", kid="again")))


def test_an_unknown_key_id_is_told_apart() -> None:
    assert claims_of(signed("rsa", "RS256", kid="new"), ALL) is None


def test_keys_that_can_not_be_used_are_left_out() -> None:
    useless = [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "secret"},
        jwk("rsa", use="enc"),
        jwk("short"),
        jwk("rsa", kid=7),
        jwk("p256", crv="P-192"),
        {**jwk("p256"), "x": "AAAA"},
        {"kty": "RSA", "kid": "half"},
        {"kty": ["RSA"]},
        {"kty": "RSA", "crv": {}},
        {"kty": "EC", "crv": []},
        jwk("rsa", alg=["RS256"]),
        jwk("rsa", use=["sig"]),
        {},
    ]
    keys = read_key_set(json.dumps({"keys": [*useless, "x", None, jwk("ed")]}).encode())
    assert [key.key_id for key in keys] == ["ed"]
    for one in useless:
        with pytest.raises(ValueError, match="none of its 1 keys"):
            read_key_set(key_set(one))


def test_a_private_key_in_a_set_is_used_as_its_public_half() -> None:
    shown = json.loads(ECAlgorithm.to_jwk(private("p256"))) | {"kid": "p256"}
    assert "d" in shown
    (key,) = read_key_set(key_set(shown))
    assert not hasattr(key.key, "sign")
    assert claims_of(signed("p256", "ES256"), key_set(shown)) == CLAIMS


@pytest.mark.parametrize("body", [b"", b"no", b"[]", b"{}", b'{"keys":{}}', b'{"keys":[]}', b"\xff", b"null"])
def test_what_is_no_key_set(body: bytes) -> None:
    with pytest.raises(ValueError):
        read_key_set(body)


def test_claims_that_are_no_object() -> None:
    for payload in (b"[]", b"1", b"\xff", b"{"):
        token = jwt.PyJWS().encode(payload, private("p256"), "ES256", {"kid": "p256"}).encode()
        with pytest.raises(Unauthorized):
            claims_of(token, ALL)
