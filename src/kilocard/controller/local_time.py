"""What clocks on the wall show, for schedules."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

from kilocard.core.errors import BackendError
from kilocard.scaling.limits import LocalTime


def local_times(zones: Iterable[str], wall: float) -> tuple[dict[str, LocalTime], list[BackendError]]:
    """The time in each zone, and what is wrong with those that are not known here. `wall`: seconds since 1970."""
    moment = datetime.fromtimestamp(wall, UTC)
    found, unknown = {}, []
    for name in sorted(zones):
        try:
            there = moment.astimezone(_zone(name))
        except (OSError, ValueError, LookupError):  # no such file, no such name, or no data at all
            unknown.append(
                BackendError(f"this machine does not know the time zone {name}: check its name, or install tzdata")
            )
        else:
            found[name] = LocalTime(there.weekday(), there.hour * 60 + there.minute)
    return found, unknown


def _zone(name: str) -> tzinfo:
    return UTC if name == "UTC" else ZoneInfo(name)  # UTC needs no data
