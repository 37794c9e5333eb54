"""What clocks on the wall show, for schedules."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from kilocard.scaling.limits import LocalTime


def local_times(zones: Iterable[str], wall: float) -> dict[str, LocalTime]:
    """`wall`: seconds since 1970. Raises ZoneInfoNotFoundError for a zone that this machine does not know."""
    moment = datetime.fromtimestamp(wall, UTC)
    there = {zone: moment.astimezone(ZoneInfo(zone)) for zone in zones}
    return {zone: LocalTime(time.weekday(), time.hour * 60 + time.minute) for zone, time in there.items()}
