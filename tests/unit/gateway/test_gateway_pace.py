"""How slowly a body may come."""

from __future__ import annotations

from kilocard.gateway.pace import Pace
from kilocard.spec.model import Limits

LIMITS = Limits(client_idle=30.0, body_rate=1000)


def cut_at(*pieces: tuple[float, int], total: float = 1800.0) -> float | None:
    """Pieces as (second, bytes in all by then), looked at once a second; when it is too slow, or None."""
    pace = Pace()
    pace.begin(100.0)
    arrived = dict(pieces)
    so_far = 0
    for second in range(1, 4001):
        so_far = arrived.get(second, so_far)
        if pace.too_slow(100.0 + second, so_far, LIMITS, total):
            return second
    return None


def test_nothing_is_asked_of_a_body_before_client_idle() -> None:
    assert cut_at() == 30


def test_a_slow_but_steady_body_has_the_whole_time_of_a_request() -> None:
    steady = [(second, second * 1100) for second in range(1, 4001)]
    assert cut_at(*steady) == 1801
    assert cut_at(*steady, total=5000.0) is None


def test_much_at_once_buys_no_time_later() -> None:
    """32 MB, then a byte now and then: on the average of the whole it would have nine hours."""
    assert cut_at((1, 32_000_000), *((second, 32_000_000 + second) for second in range(2, 4001))) == 60


def test_one_slow_stretch_is_enough() -> None:
    assert cut_at(*((second, second * 2000) for second in range(1, 600))) == 630


def test_zero_asks_for_no_rate() -> None:
    pace = Pace()
    pace.begin(0.0)
    assert not pace.too_slow(1000.0, 0, Limits(body_rate=0), 1800.0)
