"""What the answers of a limited tenant say of its limits: OpenAI's x-ratelimit-* fields, and a 429's own."""

from __future__ import annotations

from functools import lru_cache
from math import ceil

from kilocard.tenancy.limits import Denied, Grant


def rate_headers(answer: Grant | Denied) -> bytes:
    """Header lines for the tightest limit of requests and of tokens; where there is no such limit, none.

    They tell of the moment after this request was let in or refused: what it will not use comes back when it ends.
    """
    lines = b""
    left = answer.requests_left
    if left is not None:
        limit, remaining, reset = left
        lines = (
            b"x-ratelimit-limit-requests: %d\r\nx-ratelimit-remaining-requests: %d\r\n"
            b"x-ratelimit-reset-requests: %b\r\n" % (limit, remaining, _duration(reset))
        )
    left = answer.tokens_left
    if left is not None:
        limit, remaining, reset = left
        lines += (
            b"x-ratelimit-limit-tokens: %d\r\nx-ratelimit-remaining-tokens: %d\r\n"
            b"x-ratelimit-reset-tokens: %b\r\n" % (limit, remaining, _duration(reset))
        )
    return lines


def refusal_headers(denied: Denied) -> bytes:
    """The same and what clients that retry by themselves look at (retry-after is written with every error)."""
    if denied.retry_after is None:
        return rate_headers(denied) + b"x-should-retry: false\r\n"
    return rate_headers(denied) + b"retry-after-ms: %d\r\n" % ceil(max(0.001, denied.retry_after) * 1000)


@lru_cache(64)  # a replica's heads are mostly alike
def without_limits(block: bytes) -> bytes:
    """A response's head without limits that are not the tenant's but ours, at a provider behind the gateway."""
    if _FIELD not in block.lower():
        return block
    return b"".join(line for line in block.splitlines(keepends=True) if not line.lower().startswith(_FIELD))


_FIELD = b"x-ratelimit-"


def _duration(seconds: float) -> bytes:
    """As OpenAI writes it: 120ms, 1s, 6m0s, 23h59m1s. Rounded up, so that it is over then."""
    if seconds < 1:
        return b"%dms" % ceil(seconds * 1000) if seconds > 0 else b"0s"
    return _whole(ceil(seconds))


@lru_cache(1024)  # in a busy minute it is always 61 s
def _whole(seconds: int) -> bytes:
    minutes, second = divmod(seconds, 60)
    if not minutes:
        return b"%ds" % second
    hours, minutes = divmod(minutes, 60)
    return b"%dh%dm%ds" % (hours, minutes, second) if hours else b"%dm%ds" % (minutes, second)
