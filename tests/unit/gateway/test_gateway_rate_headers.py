"""x-ratelimit-* as OpenAI writes them, and what a 429 adds."""

from __future__ import annotations

import pytest

from kilocard.gateway.rate_headers import rate_headers, refusal_headers, without_limits
from kilocard.spec.model import TenantLimits
from kilocard.tenancy.limits import Ask, Denied, Grant, Scope, Standing

ASK = Ask((Scope("t", "", TenantLimits()),), 1, 1, True, 0.0, 1.0)


@pytest.mark.parametrize(
    ("reset", "text"),
    [
        (0.0, b"0s"),
        (0.0004, b"1ms"),
        (0.12, b"120ms"),
        (1.0, b"1s"),
        (59.2, b"1m0s"),
        (360.0, b"6m0s"),
        (86_341.0, b"23h59m1s"),
        (30 * 86_400.0, b"720h0m0s"),
    ],
)
def test_resets_are_rounded_up_to_what_clients_can_read(reset: float, text: bytes) -> None:
    lines = rate_headers(Grant(1, ASK, 2, Standing(60, 59, reset), None))
    assert lines == (
        b"x-ratelimit-limit-requests: 60\r\nx-ratelimit-remaining-requests: 59\r\n"
        b"x-ratelimit-reset-requests: %b\r\n" % text
    )


def test_where_there_is_no_limit_there_is_no_line() -> None:
    assert rate_headers(Grant(1, ASK, 2, None, None)) == b""
    assert rate_headers(Grant(1, ASK, 2, None, Standing(9, 8, 1.0))).startswith(b"x-ratelimit-limit-tokens: 9\r\n")


def test_a_refusal_says_when_or_that_it_is_final() -> None:
    assert refusal_headers(Denied("concurrency", "", 0.25, None, None)) == b"retry-after-ms: 250\r\n"
    assert refusal_headers(Denied("concurrency", "", 0.0, None, None)) == b"retry-after-ms: 1\r\n"
    assert refusal_headers(Denied("request_exceeds_limit", "", None, None, None)) == b"x-should-retry: false\r\n"


def test_a_providers_own_limits_are_not_the_tenants() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nX-RateLimit-Limit-Requests: 5\r\ndate: x\r\n"
    assert without_limits(head) == b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ndate: x\r\n"
    assert without_limits(head[:17]) == head[:17]
