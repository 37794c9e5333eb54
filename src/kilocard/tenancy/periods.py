"""Days and months in UTC, from Unix seconds. Pure arithmetic: this room reads neither clock nor time zone."""

from __future__ import annotations

from typing import NamedTuple

_DAY = 86_400


class Periods(NamedTuple):
    """The calendar day and month that a moment lies in."""

    #: `2026-11-29`
    day: str
    #: `2026-11`
    month: str
    #: Unix seconds of the next day's and the next month's begin
    day_end: int
    month_end: int
    #: the day before: a budget older than this is closed
    yesterday: str

    def closed(self, period: str) -> bool:
        """`period` (a day or a month) was over before yesterday. A clock that is set back a little finds its day."""
        return period < self.yesterday[: len(period)]


def periods(wall: float) -> Periods:
    """`wall`: Unix seconds."""
    number = int(wall // _DAY)
    year, month, day = _civil(number)
    first = number - day + 1
    next_month = (year + 1, 1) if month == 12 else (year, month + 1)
    length = next(days for days in (28, 29, 30, 31) if _civil(first + days)[:2] == next_month)
    return Periods(
        f"{year:04}-{month:02}-{day:02}",
        f"{year:04}-{month:02}",
        (number + 1) * _DAY,
        (first + length) * _DAY,
        "{:04}-{:02}-{:02}".format(*_civil(number - 1)),
    )


def _civil(number: int) -> tuple[int, int, int]:
    """Year, month and day of a day since 1970-01-01 (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms")."""
    z = number + 719_468  # days since 0000-03-01, where a year ends with its leap day
    era, of_era = divmod(z, 146_097)
    year_of_era = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_from_march = (5 * of_year + 2) // 153
    day = of_year - (153 * month_from_march + 2) // 5 + 1
    month = month_from_march + 3 if month_from_march < 10 else month_from_march - 9
    return year_of_era + era * 400 + (month <= 2), month, day
