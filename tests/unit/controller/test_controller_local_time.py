"""The time on the wall, for schedules."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kilocard.controller.local_time import local_times

#: a Sunday night, in summer
MOMENT = datetime(2026, 7, 5, 23, 30, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("zone", "weekday", "minute"),
    [
        ("UTC", 6, 23 * 60 + 30),
        ("Europe/Berlin", 0, 90),
        ("Asia/Shanghai", 0, 7 * 60 + 30),
        ("America/New_York", 6, 1170),
    ],
)
def test_the_same_moment_elsewhere(zone: str, weekday: int, minute: int) -> None:
    times, unknown = local_times([zone], MOMENT)
    assert times == {zone: (weekday, minute)} and not unknown


def test_an_hour_more_in_summer() -> None:
    winter = datetime(2026, 1, 5, 23, 30, tzinfo=UTC).timestamp()
    [summer, before] = [local_times(["Europe/Berlin"], each)[0]["Europe/Berlin"].minute for each in (MOMENT, winter)]
    assert summer - before == 60


def test_a_zone_that_nobody_knows_is_said_and_takes_no_other_with_it() -> None:
    times, unknown = local_times(["UTC", "Mars/Olympus"], MOMENT)
    assert set(times) == {"UTC"}
    [error] = unknown
    assert "Mars/Olympus" in error.message and "tzdata" in error.message
