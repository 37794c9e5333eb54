"""redis:// URLs, and that no password is ever shown."""

from __future__ import annotations

import ssl

import pytest

from kilocard.core.errors import UsageError
from kilocard.stores.redis_url import parse


def test_everything_in_it() -> None:
    url = parse("redis://team:p%40ss@redis.example:6380/2")
    assert url == ("redis.example", 6380, 2, "team", "p@ss", None)
    assert url.name == "redis.example:6380/2"


def test_what_is_left_out() -> None:
    assert parse("redis://localhost") == ("localhost", 6379, 0, None, None, None)
    assert parse("redis://:secret@[::1]:7000") == ("::1", 7000, 0, None, "secret", None)
    assert parse("redis://[::1]:7000").name == "[::1]:7000/0"


def test_tls_checks_certificates_unless_told_not_to() -> None:
    checked, unchecked = parse("rediss://r").tls, parse("rediss://r?ssl_cert_reqs=none").tls
    assert checked is not None and checked.verify_mode is ssl.CERT_REQUIRED and checked.check_hostname
    assert unchecked is not None and unchecked.verify_mode is ssl.CERT_NONE


@pytest.mark.parametrize(
    "url",
    [
        "redis://u:hidden@h:port/0",
        "redis://u:hidden@h/zero",
        "redis://u:hidden@h/-1",
        "redis://u:hidden@a..b/0",
        f"redis://u:hidden@{'long' * 16}/0",
        "redis://:12#hidden@h:6379/0",
        "redis://u:hidden#1@h:6379/0",
        "redis://u:hidden@h/0?db=1",
        "redis://u:hidden@h/0?ssl_cert_reqs=none",
        "rediss://u:hidden@h/0?ssl_cert_reqs=perhaps",
        "rediss://u:hidden@h/0?ssl_ca_certs=/no/such/file",
    ],
)
def test_what_makes_no_sense(url: str) -> None:
    with pytest.raises(UsageError, match=r"gateway\.limit_store") as error:
        parse(url)
    assert "hidden" not in str(error.value)
