"""Numbers as people read them."""

from __future__ import annotations


def seconds(value: float) -> str:
    """Three digits: "0.85 ms", "12.3 ms", "459 ms", "1.05 s", "12.3 s", "651 s"."""
    if value == 0:
        return "0"
    if abs(value) < 0.9995:
        return f"{_three(value * 1e3)} ms"
    return f"{_three(value)} s"


def brief(value: float) -> str:
    """For a tick: no zeros behind the point. "5 ms", "1.5 s" """
    digits, _, unit = seconds(value).partition(" ")
    return f"{_plain(digits)} {unit}".strip()


def plain(value: float) -> str:
    """For a tick: "50", "2.5", "1,000"."""
    return _plain(number(value))


def milliseconds(value: float) -> str:
    """Without the unit, for a column of a table: "4.66", "459", "12,300"."""
    return "0" if value == 0 else _three(value * 1e3)


def number(value: float) -> str:
    """Three digits, or all of a large one: "0.123", "4.56", "17.4", "2,230"."""
    if value == 0:
        return "0"
    return _three(value)


def share(value: float) -> str:
    """ "97 %", "0.4 %" """
    percent = 100 * value
    return f"{percent:.1f} %" if 0 < abs(percent) < 9.95 else f"{percent:.0f} %"


def count(value: float | None) -> str:
    """ "2,230"; a dash where nothing is known."""
    return "–" if value is None else f"{value:,.0f}"


def _plain(digits: str) -> str:
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def _three(value: float) -> str:
    size = abs(value)
    if size >= 99.95:
        return f"{value:,.0f}"
    if size >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}" if size >= 0.0995 else f"{value:.2g}"
