"""Numbers of a snapshot, read back from a file that anybody may have written."""

from __future__ import annotations

#: seconds, counts: no snapshot has more
MOST = 1e15


def number(value: object) -> float | None:
    """From 0 on; None for anything else, such as NaN, which JSON files may hold."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < MOST:
        return None
    return float(value)


def numbers(value: object) -> list[float]:
    """Those of a list that are some."""
    found = map(number, value) if isinstance(value, list) else ()
    return [each for each in found if each is not None]
