"""Days and months against the standard library's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from kilocard.tenancy.periods import periods


@given(st.floats(0, 32_503_680_000))  # to the year 3000
def test_the_calendar_is_the_standard_librarys(wall: float) -> None:
    then = datetime.fromtimestamp(int(wall), UTC)
    midnight = then.replace(hour=0, minute=0, second=0, microsecond=0)
    next_month = (midnight.replace(day=1) + timedelta(days=32)).replace(day=1)
    got = periods(wall)
    assert got.day == f"{then:%Y-%m-%d}"
    assert got.month == f"{then:%Y-%m}"
    assert got.day_end == (midnight + timedelta(days=1)).timestamp()
    assert got.month_end == next_month.timestamp()
    assert got.yesterday == f"{midnight - timedelta(days=1):%Y-%m-%d}"


def test_yesterday_is_not_closed_and_the_day_before_is() -> None:
    first = periods(datetime(2026, 12, 1, 12, tzinfo=UTC).timestamp())
    assert not first.closed("2026-11-30")
    assert not first.closed("2026-11")  # yesterday's month
    assert first.closed("2026-11-29")
    assert first.closed("2026-10")
