"""Which schedules of a pool hold at a time of day, and what they make of its bounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kilocard.scaling.limits import LocalTime
from kilocard.spec.scaling import ScheduleSpec


def holds(schedule: ScheduleSpec, time: LocalTime) -> bool:
    """Whether it holds now. One that runs past midnight belongs to the day on which it begins."""
    if schedule.start < schedule.end:
        return time.weekday in schedule.days and schedule.start <= time.minute < schedule.end
    if time.minute >= schedule.start:
        return time.weekday in schedule.days
    return time.minute < schedule.end and (time.weekday - 1) % 7 in schedule.days


def bounds(
    low: int, high: int, schedules: Iterable[ScheduleSpec], local: Mapping[str, LocalTime]
) -> tuple[int, int, list[str]]:
    """(fewest, most, names of the schedules that hold). Where several hold, the highest min and the lowest max.

    A schedule whose zone's time is not told does not hold.
    """
    found = [each for each in schedules if each.zone in local and holds(each, local[each.zone])]
    lows = [each.min for each in found if each.min is not None]
    highs = [each.max for each in found if each.max is not None]
    low = max(lows, default=low)
    high = min([high, *highs])
    return min(low, high), high, [each.name for each in found]
