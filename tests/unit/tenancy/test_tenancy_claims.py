"""What a token has to say to be somebody's; what is refused before any cryptography; how good ones are remembered."""

from __future__ import annotations

import base64
import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilocard.core.errors import Forbidden, KilocardError, Unauthorized
from kilocard.spec.model import TenantSpec
from kilocard.spec.services import OidcSpec
from kilocard.tenancy.access import REMEMBERED_TOKENS, Access, Verified
from kilocard.tenancy.claims import (
    ALGORITHMS,
    LEEWAY,
    LONGEST,
    good_until,
    is_younger,
    read_claims,
    read_header,
    tenant_of,
)

OIDC = OidcSpec(issuer="https://id.example.com", audience=("kilocard", "other"))
NOW = 1_800_000_000.0
GOOD = {"iss": OIDC.issuer, "aud": "kilocard", "exp": NOW + 60, "tenant": "team-a"}
DECLARED = {"team-a", "team-b"}


def part(value: Any) -> bytes:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")


def token(header: dict[str, Any], claims: dict[str, Any] = GOOD) -> bytes:
    return part(header) + b"." + part(claims) + b"." + part("signature")


# --- claims


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"aud": ["x", "other"]},
        {"exp": NOW + 0.5},
        {"exp": NOW - LEEWAY + 1},
        {"nbf": NOW},
        {"nbf": NOW + LEEWAY},
        {"nbf": None},
        {"iat": "whenever"},
    ],
)
def test_good_claims(changes: dict[str, Any]) -> None:
    claims = GOOD | changes
    assert good_until(claims, OIDC, NOW) == claims["exp"] + LEEWAY
    assert tenant_of(claims, OIDC, DECLARED) == "team-a"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"iss": OIDC.issuer + "/"}, "another issuer"),
        ({"iss": None}, "another issuer"),
        ({"iss": [OIDC.issuer]}, "another issuer"),
        ({"aud": "kilo"}, "another audience"),
        ({"aud": None}, "another audience"),
        ({"aud": []}, "another audience"),
        ({"aud": {"kilocard": 1}}, "another audience"),
        ({"aud": [["kilocard"], 1]}, "another audience"),
        ({"exp": NOW - LEEWAY}, "has expired"),
        ({"exp": None}, "no time of expiry"),
        ({"exp": str(NOW + 60)}, "exp is no time"),
        ({"exp": True}, "exp is no time"),
        ({"exp": float("nan")}, "exp is no time"),
        ({"exp": float("inf")}, "exp is no time"),
        ({"exp": 10**400}, "exp is no time"),
        ({"nbf": NOW + LEEWAY + 1}, "not valid yet"),
        ({"nbf": "x"}, "nbf is no time"),
    ],
)
def test_claims_that_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(Unauthorized, match=said) as caught:
        good_until(GOOD | changes, OIDC, NOW)
    assert (caught.value.http_status, caught.value.code) == (401, "invalid_token")


def test_a_token_without_an_audience_in_the_file_is_nobodys() -> None:
    with pytest.raises(Unauthorized):
        good_until(GOOD | {"aud": ""}, OidcSpec(issuer=OIDC.issuer), NOW)


@pytest.mark.parametrize(
    ("claim", "claims", "tenant"),
    [
        ("tenant", {"tenant": "team-b"}, "team-b"),
        ("groups", {"groups": ["staff", "team-b", "team-a"]}, "team-b"),
        ("realm_access.tenant", {"realm_access": {"tenant": "team-a"}}, "team-a"),
        ("a.b.c", {"a": {"b": {"c": ["team-a"]}}}, "team-a"),
        ("https://example.com/tenant", {"https://example.com/tenant": "team-a"}, "team-a"),  # dots in a name
        ("a.b", {"a.b": "team-a", "a": {"b": "team-b"}}, "team-a"),
    ],
)
def test_the_claim_that_names_the_tenant(claim: str, claims: dict[str, Any], tenant: str) -> None:
    assert tenant_of(claims, OidcSpec(tenant_claim=claim), DECLARED) == tenant


@pytest.mark.parametrize(
    ("claim", "claims"),
    [
        ("tenant", {}),
        ("tenant", {"tenant": "stranger"}),
        ("tenant", {"tenant": ""}),
        ("tenant", {"tenant": None}),
        ("tenant", {"tenant": {"team-a": 1}}),
        ("tenant", {"tenant": [["team-a"], 1, None, {}]}),
        ("a.b", {"a": "team-a"}),
        ("a.b", {"a": ["team-a"]}),
        ("a.", {"a": {"x": "team-a"}}),
    ],
)
def test_a_token_that_names_no_tenant_is_403_and_says_no_names(claim: str, claims: dict[str, Any]) -> None:
    with pytest.raises(Forbidden) as caught:
        tenant_of(claims, OidcSpec(tenant_claim=claim), DECLARED)
    assert (caught.value.http_status, caught.value.code) == (403, "unknown_tenant")
    assert "team" not in caught.value.message and "stranger" not in caught.value.message


# --- before any cryptography


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_headers_that_are_read_on(algorithm: str) -> None:
    assert read_header(token({"alg": algorithm, "kid": "k", "typ": "JWT"})) == (algorithm, "k")
    assert read_header(token({"alg": algorithm, "typ": "at+jwt"})) == (algorithm, None)
    assert read_header(token({"alg": algorithm, "typ": "application/JWT"})) == (algorithm, None)
    assert read_claims(token({"alg": algorithm})) == GOOD


@pytest.mark.parametrize(
    "header",
    [
        {"alg": "none"},
        {"alg": "None"},
        {"alg": "NONE"},
        {"alg": ""},
        {"alg": None},
        {"alg": ["RS256"]},
        {},
        {"alg": "HS256"},
        {"alg": "HS384"},
        {"alg": "HS512"},
        {"alg": "hs256"},
        {"alg": "rs256"},
        {"alg": "ES256K"},
        {"alg": "RSA-OAEP", "enc": "A256GCM"},
        {"alg": "RS256", "crit": ["exp"]},
        {"alg": "RS256", "b64": False},
        {"alg": "RS256", "kid": 7},
        {"alg": "RS256", "kid": ["k"]},
        {"alg": "RS256", "typ": "logout+jwt"},
        {"alg": "RS256", "typ": 1},
    ],
)
def test_headers_that_are_refused(header: dict[str, Any]) -> None:
    with pytest.raises(Unauthorized) as caught:
        read_header(token(header))
    assert caught.value.code == "invalid_token"


@pytest.mark.parametrize(
    "garbage",
    [b"", b"..", b"a.b.c", b"e30.e30.", b"bnVsbA.e30.x", b"W10.e30.x", b"=.=.=", b"\xff\x00.a.b", b"e" * LONGEST],
)
def test_garbage(garbage: bytes) -> None:
    with pytest.raises(Unauthorized):
        read_header(garbage)


@given(st.binary(max_size=60) | st.text('eyJ.0aA-_{}"', max_size=60).map(str.encode))
def test_any_bytes_are_a_header_or_a_401(noise: bytes) -> None:
    with contextlib.suppress(Unauthorized):
        assert read_header(noise).algorithm in ALGORITHMS


def test_deep_and_large_json_is_no_bomb() -> None:
    for bomb in (b"[" * 9000, b'{"a":' * 1800, b"9" * 9000):
        with pytest.raises(Unauthorized):
            read_header(base64.urlsafe_b64encode(bomb) + b"..")


# --- how good ones are remembered


class Verifier:
    """Says that `a.b.<time>` is team-a's until then."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, token: bytes) -> Verified:
        self.asked += 1
        last = token.rpartition(b".")[2]
        if not last.isdigit():
            raise Unauthorized("bad", code="invalid_token")
        return Verified("team-a", float(last))


def with_tokens() -> tuple[Access, Verifier]:
    verifier = Verifier()
    return Access({"team-a": TenantSpec("team-a"), "team-b": TenantSpec("team-b")}, {}, verifier), verifier


def test_a_token_is_verified_once_until_it_expires() -> None:
    access, verifier = with_tokens()
    for _ in range(3):
        assert access.who(b"Bearer a.b.100", None).name == "team-a"
    assert verifier.asked == 1
    access.forget_expired(99.9)
    access.who(b"Bearer a.b.100", None)
    assert verifier.asked == 1
    access.forget_expired(100.0)
    access.who(b"Bearer a.b.100", None)
    assert verifier.asked == 2


def test_bad_tokens_are_not_remembered() -> None:
    access, verifier = with_tokens()
    for number in range(50):
        with pytest.raises(Unauthorized):
            access.who(b"Bearer a.b.x%d" % number, None)
    assert verifier.asked == 50 and not access._by_token and not access._expiries


@pytest.mark.parametrize(
    ("authorization", "x_api_key"),
    [
        (b"Bearer a.b", None),
        (b"Bearer a.b.c.d", None),
        (b"Bearer kc-x", None),
        (None, b"a.b.100"),
        (b"Basic a.b.9", None),
    ],
)
def test_only_bearers_of_three_parts_are_tokens(authorization: bytes | None, x_api_key: bytes | None) -> None:
    access, verifier = with_tokens()
    with pytest.raises(KilocardError):
        access.who(authorization, x_api_key)
    assert verifier.asked == 0


def test_memory_of_tokens_is_bounded_and_the_first_to_expire_goes() -> None:
    access, verifier = with_tokens()
    for until in range(REMEMBERED_TOKENS + 100, 0, -1):
        access.who(b"Bearer a.b.%d" % until, None)
    assert len(access._by_token) == len(access._expiries) == REMEMBERED_TOKENS
    before = verifier.asked
    access.who(b"Bearer a.b.%d" % (REMEMBERED_TOKENS + 100), None)
    assert verifier.asked == before


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(0, 20)), max_size=40))
def test_who_is_remembered_is_never_past_its_time(story: list[tuple[int, int]]) -> None:
    access, _ = with_tokens()
    for until, now in story:
        access.who(b"Bearer a.b.%d" % until, None)
        access.forget_expired(float(now))
        assert all(int(value.rpartition(b".")[2]) > now for value in access._by_token)
        assert {value for _, value in access._expiries} == set(access._by_token)


@pytest.mark.parametrize(("made", "younger"), [(1000, True), (971.0, True), (970, False), (None, False), ("9", False)])
def test_when_a_token_was_made(made: object, younger: bool) -> None:
    assert is_younger({} if made is None else {"iat": made}, 1000.0) is younger
