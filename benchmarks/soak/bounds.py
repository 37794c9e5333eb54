"""Were the limits kept? Judged from the ledger's times, which are the gateway's own. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from benchmarks.soak.books import Row

#: seconds
MINUTE = 60.0

#: the limit that may have been in force at a time; None: there was none
LimitAt = Callable[[float], int | None]


class Peak(NamedTuple):
    """The fullest moment: what was used of the limit then."""

    used: int
    limit: int


def judge_window(
    charges: Iterable[tuple[float, int]], limit_at: LimitAt, slack: float
) -> tuple[Peak | None, list[str]]:
    """No minute that ends with an admission holds more than the limit of that moment.

    `charges`: (time of admission, what was charged for it). `slack`: seconds by which times may be off.
    """
    ordered = sorted(charges)
    violations = []
    peak: Peak | None = None
    total = first = 0
    for at, count in ordered:
        total += count
        while ordered[first][0] < at - MINUTE + slack:
            total -= ordered[first][1]
            first += 1
        limit = limit_at(at)
        if limit is None or not count:
            continue
        if total > limit:
            violations.append(f"{total} of {limit} in the minute before {at:.3f}")
        if peak is None or total * peak.limit > peak.used * limit:
            peak = Peak(total, limit)
    return peak, violations


def judge_concurrency(
    spans: Iterable[tuple[float, float]], limit_at: LimitAt, slack: float
) -> tuple[Peak | None, list[str]]:
    """Whenever a request is let in, no more run with it than the limit of that moment. `spans`: (from, to)."""
    begins: list[tuple[float, bool]] = []
    for since, until in spans:
        if until - slack > since:
            begins += [(since, True), (until - slack, False)]
    violations = []
    peak: Peak | None = None
    running = 0
    for at, begin in sorted(begins):  # an end before a beginning at the same moment
        running += 1 if begin else -1
        limit = limit_at(at)
        if not begin or limit is None:
            continue
        if running > limit:
            violations.append(f"{running} of {limit} at {at:.3f}")
        if peak is None or running * peak.limit > peak.used * limit:
            peak = Peak(running, limit)
    return peak, violations


def judge_limits(
    rows: Sequence[Row], limit: Callable[[str, str, float], int | None], tenants: Iterable[str], slack: float
) -> tuple[dict[str, Peak], list[str]]:
    """All limits per minute, of requests at once, and per day, of all tenants: how far each was used, and where passed.

    `limit`: (tenant, kind, Unix time).
    """
    peaks: dict[str, Peak] = {}
    violations: list[str] = []
    for tenant in tenants:
        mine = [row for row in rows if row.tenant == tenant]
        counted = [row for row in mine if row.counts]

        def at(kind: str, tenant: str = tenant) -> LimitAt:
            return lambda moment: limit(tenant, kind, moment)

        judged = {
            "requests_per_minute": judge_window(
                [(row.started, 1) for row in counted], at("requests_per_minute"), slack
            ),
            "tokens_per_minute": judge_window(
                [(row.started, row.known_tokens) for row in counted], at("tokens_per_minute"), slack
            ),
            "concurrency": judge_concurrency([(row.started, row.ended) for row in mine], at("concurrency"), slack),
            "tokens_per_day": _judge_days([(row.started, row.known_tokens) for row in counted], at("tokens_per_day")),
        }
        for kind, (peak, wrong) in judged.items():
            if peak is not None:
                peaks[f"{tenant}: {kind}"] = peak
            violations += [f"{tenant}, {kind}: {sentence}" for sentence in wrong]
    return peaks, violations


def _judge_days(charges: Iterable[tuple[float, int]], limit_at: LimitAt) -> tuple[Peak | None, list[str]]:
    days: dict[int, int] = {}
    limits: dict[int, int] = {}
    for at, count in charges:
        limit = limit_at(at)
        if limit is not None:
            day = int(at // 86_400)
            days[day] = days.get(day, 0) + count
            limits[day] = max(limits.get(day, 0), limit)
    peaks = [Peak(used, limits[day]) for day, used in days.items()]
    violations = [f"{peak.used} of {peak.limit} in a day" for peak in peaks if peak.used > peak.limit]
    return max(peaks, default=None), violations
