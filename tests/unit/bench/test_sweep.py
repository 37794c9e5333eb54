"""Which point comes next."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from kilocard.bench.loads import Load
from kilocard.bench.point import Point
from kilocard.bench.sweep import Doubling, Listed, Sweep


def measured(sweep: Sweep, most: int = 100) -> list[Load]:
    """All the loads that a sweep asks for."""
    points: list[Point] = []
    loads = []
    while (load := sweep.next(points)) is not None:
        loads.append(load)
        points.append(Point(0.0, 1.0, concurrency=load.concurrency, rate_per_s=load.rate_per_s))
        assert len(points) < most, "it never ends"
    return loads


def concurrencies(sweep: Sweep) -> list[int | None]:
    return [load.concurrency for load in measured(sweep)]


def server(slots: int, *, repeats: int = 1, most: int = 512) -> Doubling:
    """Throughput grows with concurrency up to `slots`, and not a bit after it."""

    def speed(point: Point) -> int:
        assert point.concurrency is not None
        return min(slots, point.concurrency)

    def is_past(points: Sequence[Point]) -> bool:
        top = sorted({point.concurrency or 0: speed(point) for point in points}.items())
        return len(top) >= 2 and top[-1][1] < 1.05 * top[-2][1]

    def knee(points: Sequence[Point]) -> int | None:
        best = max(map(speed, points))
        return min(point.concurrency or 0 for point in points if speed(point) >= 0.95 * best)

    return Doubling(is_past=is_past, knee=knee, repeats=repeats, most=most)


def test_a_list_is_measured_as_it_stands_and_repeats_go_round() -> None:
    one, two = Load(concurrency=1), Load(concurrency=2)
    assert measured(Listed([one, two], repeats=2)) == [one, two, one, two]


def test_a_list_may_end_early_and_its_repeats_then_go_as_far() -> None:
    loads = [Load(concurrency=c) for c in (1, 2, 4, 8)]
    sweep = Listed(loads, repeats=2, is_past=lambda points: points[-1].concurrency == 4)
    assert concurrencies(sweep) == [1, 2, 4, 1, 2, 4]


def test_doubling_stops_past_the_knee_and_then_looks_closer_on_both_sides_of_it() -> None:
    assert concurrencies(server(8)) == [1, 2, 4, 8, 16, 6, 7, 12]


def test_a_knee_between_two_powers_is_found_by_the_points_in_between() -> None:
    assert concurrencies(server(10)) == [1, 2, 4, 8, 16, 32, 12, 10]


def test_doubling_is_over_once_it_has_looked_closer() -> None:
    """Even if the judgement is another one with the points in between: they came after the end of the doubling."""
    sweep = Doubling(is_past=lambda points: points[-1].concurrency == 16, knee=lambda points: 8)
    assert concurrencies(sweep) == [1, 2, 4, 8, 16, 6, 7, 12]


def test_no_knee_at_all_ends_at_the_most_that_was_allowed() -> None:
    assert concurrencies(server(1000, most=24)) == [1, 2, 4, 8, 16, 24, 20]


def test_repeats_of_a_load_follow_each_other() -> None:
    assert concurrencies(server(1, repeats=2)) == [1, 1, 2, 2]


@given(slots=st.integers(1, 600), most=st.integers(1, 512), repeats=st.integers(1, 3))
def test_any_sweep_ends_and_finds_the_knee_within_an_eighth(slots: int, most: int, repeats: int) -> None:
    sweep = server(slots, most=most, repeats=repeats)
    tried = concurrencies(sweep)
    assert len(tried) <= repeats * 14
    assert max(c or 0 for c in tried) <= most
    found = sweep.knee([Point(0.0, 1.0, concurrency=c) for c in tried])
    assert found is not None
    wanted = min(slots, most)
    assert 0.95 * wanted <= found <= 1.25 * wanted + 1
