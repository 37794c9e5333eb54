"""Tenants' keys: who gets in, who does not, and what the errors say."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilocard.core.errors import Forbidden, KilocardError, Unauthorized
from kilocard.spec.model import TenantSpec
from kilocard.tenancy.access import ANYBODY, REMEMBERED, Access
from kilocard.wire.failure import error_body


def hashed(key: str) -> str:
    return "sha256:" + hashlib.sha256(key.encode()).hexdigest()


def two_teams() -> Access:
    return Access(
        {
            "team-a": TenantSpec("team-a", keys=(hashed("kc-a"), hashed("kc-a2")), models=("small",)),
            "team-b": TenantSpec("team-b", keys=(hashed("kc-b"),)),
        }
    )


def refused(
    access: Access, authorization: bytes | None, x_api_key: bytes | None, model: str = "small"
) -> KilocardError:
    with pytest.raises(KilocardError) as caught:
        access.check(authorization, x_api_key, model)
    return caught.value


@pytest.mark.parametrize("authorization", [None, b"", b"Bearer whatever", b"Basic x"])
def test_no_tenants_is_open(authorization: bytes | None) -> None:
    access = Access({})
    assert access.open
    assert access.check(authorization, None, "any") == ""
    assert access.who(authorization, None) is ANYBODY


@pytest.mark.parametrize(
    ("authorization", "x_api_key", "tenant"),
    [
        (b"Bearer kc-a", None, "team-a"),
        (b"Bearer kc-a2", None, "team-a"),
        (b"Bearer kc-b", None, "team-b"),
        (b"bearer kc-b", None, "team-b"),
        (b"  BEARER   kc-b ", None, "team-b"),
        (None, b"kc-a", "team-a"),
        (None, b" kc-b", "team-b"),
        (b"Bearer kc-a", b"kc-b", "team-a"),
        (b"Basic dTpw", b"kc-b", "team-b"),
    ],
)
def test_known_keys_get_in(authorization: bytes | None, x_api_key: bytes | None, tenant: str) -> None:
    access = two_teams()
    for _ in range(3):  # the second time from memory
        assert access.check(authorization, x_api_key, "small") == tenant


@pytest.mark.parametrize(
    ("authorization", "x_api_key", "code"),
    [
        (None, None, "missing_api_key"),
        (b"Bearer", None, "missing_api_key"),
        (b"Bearer ", None, "missing_api_key"),
        (None, b"", "missing_api_key"),
        (b"Bearer kc-c", None, "invalid_api_key"),
        (b"Bearer kc-", None, "invalid_api_key"),
        (b"Bearer KC-A", None, "invalid_api_key"),
        (b"Bearer kc-a kc-b", None, "invalid_api_key"),
        (b"Bearer kc-c", b"kc-b", "invalid_api_key"),  # the bearer counts, good or not
        (b"kc-a", None, "invalid_api_key"),
        (b"", None, "invalid_api_key"),
        (b"Basic kc-a", None, "invalid_api_key"),
        (None, b"Bearer kc-a", "invalid_api_key"),
        (b"Bearer \xff\x00", None, "invalid_api_key"),
        (b"Bearer " + hashed("kc-a").encode(), None, "invalid_api_key"),  # the file's line is no key
        (b"Bearer " + hashlib.sha256(b"kc-a").digest(), None, "invalid_api_key"),
    ],
)
def test_all_others_do_not(authorization: bytes | None, x_api_key: bytes | None, code: str) -> None:
    access = two_teams()
    for _ in range(2):
        error = refused(access, authorization, x_api_key)
        assert isinstance(error, Unauthorized)
        assert (error.http_status, error.kind, error.code) == (401, "authentication_error", code)


def test_a_memory_is_of_one_header_only() -> None:
    access = two_teams()
    access.check(None, b"kc-a", "small")
    assert refused(access, b"kc-a", None).code == "invalid_api_key"
    access.check(b"Bearer kc-a", None, "small")
    assert refused(access, None, b"Bearer kc-a").code == "invalid_api_key"


def test_models_of_a_tenant() -> None:
    access = two_teams()
    assert access.check(b"Bearer kc-b", None, "large") == "team-b"
    for model in ("large", "no-such-model", "", "Small"):
        error = refused(access, b"Bearer kc-a", None, model)
        assert isinstance(error, Forbidden)
        assert (error.http_status, error.kind, error.code) == (403, "permission_error", "model_not_allowed")
        assert model not in error.message or not model
    assert access.who(b"Bearer kc-a", None).may_use("small")
    assert not access.who(b"Bearer kc-a", None).may_use("large")
    assert access.who(b"Bearer kc-b", None).may_use("large")


def test_tenants_without_keys_close_the_gateway() -> None:
    access = Access({"later": TenantSpec("later")})
    assert not access.open
    assert refused(access, None, None).code == "missing_api_key"
    assert refused(access, b"Bearer x", None).code == "invalid_api_key"


@given(st.binary(max_size=80), st.booleans())
def test_whatever_is_presented_is_refused_and_not_repeated(noise: bytes, bearer: bool) -> None:
    access = two_teams()
    key = b"secret" + noise + b"secret"
    error = refused(access, b"Bearer " + key, None) if bearer else refused(access, None, key)
    assert isinstance(error, Unauthorized)
    assert "secret" not in error.message
    assert json.loads(error_body(error))["error"]["type"] == "authentication_error"


def test_memory_is_bounded_and_guesses_leave_nothing() -> None:
    access = two_teams()
    for number in range(3 * REMEMBERED):
        refused(access, b"Bearer guess-%d" % number, None)
        refused(access, None, b"guess-%d" % number)
    assert not access._by_header and not access._by_x_api_key
    for spaces in range(1, REMEMBERED + 10):
        assert access.check(b"Bearer" + b" " * spaces + b"kc-b", None, "m") == "team-b"
        assert access.check(None, b" " * spaces + b"kc-b", "m") == "team-b"
    assert len(access._by_header) <= REMEMBERED and len(access._by_x_api_key) <= REMEMBERED
