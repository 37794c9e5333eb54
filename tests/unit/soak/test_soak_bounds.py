"""Were limits kept? The soak's judgement of a ledger."""

from __future__ import annotations

import pytest
from benchmarks.soak.books import Row
from benchmarks.soak.bounds import Peak, judge_concurrency, judge_limits, judge_window
from benchmarks.soak.cast import Tenant
from benchmarks.soak.reloads import InForce
from hypothesis import given
from hypothesis import strategies as st

from kilocard.tenancy.window import Window


def three(at: float) -> int | None:
    return 3


def test_a_minute_that_is_just_full_is_no_violation() -> None:
    charges = [(0.0, 1), (30.0, 1), (59.0, 1), (60.1, 1)]
    assert judge_window(charges, three, 0.0) == (Peak(3, 3), [])


def test_one_more_within_a_minute_is_one() -> None:
    peak, violations = judge_window([(0.0, 1), (30.0, 1), (59.0, 1), (59.9, 1)], three, 0.0)
    assert peak == Peak(4, 3) and violations == ["4 of 3 in the minute before 59.900"]


def test_slack_forgives_times_that_are_a_little_off() -> None:
    charges = [(0.0, 3), (59.9, 1)]
    assert judge_window(charges, three, 0.0)[1] and not judge_window(charges, three, 0.5)[1]


def test_what_was_let_in_under_a_higher_limit_is_not_blamed_on_the_lower_one() -> None:
    def lowered(at: float) -> int | None:
        return 5 if at < 20 else 2

    assert judge_window([(float(at), 1) for at in range(5)], lowered, 0.0)[1] == []
    assert len(judge_window([*((float(at), 1) for at in range(5)), (21.0, 1)], lowered, 0.0)[1]) == 1


def test_without_a_limit_nothing_is_judged() -> None:
    assert judge_window([(0.0, 10**9)], lambda at: None, 0.0) == (None, [])


@given(st.lists(st.tuples(st.floats(0, 200), st.integers(1, 3)), max_size=80))
def test_what_the_gateways_own_window_lets_in_is_never_a_violation(asked: list[tuple[float, int]]) -> None:
    window = Window()
    admitted = []
    for at, count in sorted(asked):
        window.turn(int(at))
        if window.total + count <= 5:
            window.add(count)
            admitted.append((at, count))
    assert judge_window(admitted, lambda at: 5, 0.0)[1] == []


@pytest.mark.parametrize(
    ("spans", "most", "violations"),
    [
        ([(0, 2), (1, 3), (2, 4)], 2, 0),
        ([(0, 2), (1, 3), (1.5, 4)], 3, 0),
        ([(0, 9), (1, 9), (2, 9), (3, 9)], 4, 1),
    ],
)
def test_concurrency(spans: list[tuple[float, float]], most: int, violations: int) -> None:
    peak, found = judge_concurrency(spans, three, 0.0)
    assert peak == Peak(most, 3) and len(found) == violations


def test_an_end_that_is_noted_a_little_late_is_forgiven() -> None:
    spans = [(0.0, 1.01)] * 3 + [(1.0, 2.0)]
    assert judge_concurrency(spans, three, 0.0)[1] and not judge_concurrency(spans, three, 0.1)[1]


def row(at: float, tenant: str = "a", *, tokens: int = 10, outcome: str = "ok") -> Row:
    return Row(f"kc-{at}", at, at + 0.5, tenant, "m", "left", tokens, 0, False, 0.0, outcome, 200)


def limits(tenant: str, kind: str, at: float) -> int | None:
    return {"requests_per_minute": 2, "tokens_per_minute": 30, "tokens_per_day": 40, "concurrency": 2}[kind]


def test_every_limit_of_every_tenant_is_judged() -> None:
    rows = [row(0.0), row(0.1), row(0.2), row(0.3, "b"), row(100.0, tokens=35)]
    peaks, violations = judge_limits(rows, limits, ["a", "b"], 0.0)
    assert [sentence.split(":")[0] for sentence in violations] == [
        "a, requests_per_minute", "a, tokens_per_minute", "a, concurrency", "a, tokens_per_day",
    ]  # fmt: skip
    assert peaks["b: requests_per_minute"] == Peak(1, 2)


def test_a_request_that_failed_costs_nothing_but_its_place() -> None:
    failed = [row(at / 10, tokens=0, outcome="upstream_error") for at in range(5)]
    _, violations = judge_limits(failed, limits, ["a"], 0.0)
    assert {sentence.split(":")[0] for sentence in violations} == {"a, concurrency"}


def test_while_a_file_is_taken_over_either_limit_may_be_in_force() -> None:
    tenant = Tenant("a", 1, limits={"concurrency": 3}, other_limits={"concurrency": 2})
    held = InForce({"a": tenant})
    held.change(0, 0.0, 0.0)
    held.change(1, 10.0, 11.0)
    held.change(2, 20.0, 22.0)
    assert [held.limit("a", "concurrency", at) for at in (5, 10.5, 11.5, 20.5, 30)] == [3, 3, 2, 3, 3]
    assert held.limit("a", "tokens_per_day", 5) is None
