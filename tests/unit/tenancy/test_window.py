"""A minute that slides."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kilocard.tenancy.limits import Standing
from kilocard.tenancy.window import Window


def test_a_charge_stays_for_the_whole_minute_and_at_most_a_second_more() -> None:
    window = Window()
    window.turn(100)
    window.add(5)
    window.turn(160)  # a charge of 100.99 is 59.01 s old
    assert window.total == 5
    assert window.standing(8, 160.0) == Standing(8, 3, 1.0)
    window.turn(161)
    assert window.total == 0
    assert window.standing(8, 161.0) == Standing(8, 8, 0.0)


def test_a_charge_that_is_given_back_frees_its_own_second() -> None:
    window = Window()
    window.turn(100)
    window.add(5)
    window.turn(130)
    window.add(7)
    window.give_back(100, 3)
    assert window.total == 9
    window.turn(161)
    assert window.total == 7
    window.give_back(100, 2)  # gone already: it counts no more anyway
    assert window.total == 7


def test_the_wait_is_until_enough_has_left() -> None:
    window = Window()
    for second, count in ((100, 5), (120, 5), (140, 5)):
        window.turn(second)
        window.add(count)
    assert window.wait(1, 150.5) == 10.5
    assert window.wait(6, 150.5) == 30.5
    assert window.wait(15, 150.5) == 50.5


def test_a_clock_that_goes_back_loses_nothing() -> None:
    window = Window()
    window.turn(100)
    window.add(1)
    window.turn(90)
    window.add(1)
    window.turn(160)
    assert window.total == 2


def test_a_long_pause_empties_it() -> None:
    window = Window()
    window.turn(5)
    window.add(3)
    window.turn(10_000)
    assert window.total == 0


@given(st.lists(st.tuples(st.floats(0, 50), st.integers(1, 9)), max_size=40), st.integers(1, 20))
def test_no_60_seconds_hold_more_than_the_limit(charges: list[tuple[float, int]], limit: int) -> None:
    """Steps of time between charges that are let in while there is room: any 60 s are within the limit."""
    window = Window()
    now = 0.0
    let_in: list[tuple[float, int]] = []
    for step, count in charges:
        now += step
        window.turn(int(now))
        if window.total + count <= limit:
            window.add(count)
            let_in.append((now, count))
    for start, _ in let_in:
        assert sum(count for at, count in let_in if start <= at < start + 60) <= limit
