"""What an Ask comes to, before any store is asked."""

from __future__ import annotations

import pytest

from kilocard.spec.model import TenantLimits
from kilocard.tenancy.limits import KINDS, Ask, Scope, Used, whole_limit


def ask(*limits: TenantLimits, prompt: int = 10, output: int = 20, bounded: bool = True) -> Ask:
    scopes = tuple(Scope("t", "" if i == 0 else "m", given) for i, given in enumerate(limits))
    return Ask(scopes, prompt, output, bounded, wall=0.0, lasts=60.0)


def test_a_bounded_request_reserves_prompt_and_bound() -> None:
    assert ask(TenantLimits(tokens_per_minute=5)).tokens == 30


@pytest.mark.parametrize(
    ("prompt", "reserved"), [(10, 25), (24, 25), (30, 30)], ids=["cut", "cut to nearly nothing", "prompt alone is over"]
)
def test_an_unbounded_one_reserves_at_most_what_the_tightest_limit_has(prompt: int, reserved: int) -> None:
    limits = TenantLimits(tokens_per_minute=100, tokens_per_day=40), TenantLimits(tokens_per_minute=25)
    assert ask(*limits, prompt=prompt, bounded=False).tokens == reserved


def test_an_unbounded_one_without_limits_of_tokens_reserves_the_default() -> None:
    only_requests = ask(TenantLimits(requests_per_minute=1), bounded=False)
    assert whole_limit(only_requests.scopes) is None
    assert only_requests.tokens == 30


def test_counters_are_found_by_the_name_of_their_limit() -> None:
    used = Used(in_flight=1, requests=2, tokens=3, day=4, month=5)
    assert {kind: used.of(kind) for kind in KINDS} == {
        "concurrency": 1,
        "requests_per_minute": 2,
        "tokens_per_minute": 3,
        "tokens_per_day": 4,
        "tokens_per_month": 5,
    }
