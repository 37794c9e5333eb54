"""When a sweep has seen enough: past the knee more load costs time and shows nothing."""

from __future__ import annotations

from collections.abc import Sequence

from kilocard.bench.caveats import in_order, places
from kilocard.bench.curve import Load, closed, opened
from kilocard.bench.document import PointResult

#: over two doublings of the load; TTFT doubling meanwhile says that the rest only queues
GAIN = 1.10
#: of the best throughput so far
FALL = 0.8
#: of requests that failed
ERRORS = 0.1


def stop_early(points: Sequence[PointResult]) -> str | None:
    """Why not to go to a larger load than those of `points`; None: go on."""
    largest = max(points, key=in_order, default=None)
    if largest is not None and largest.client.limited:
        return f"at {places([largest])} the load tester itself was the limit: {largest.client.limited}"
    for loads, unit in ((closed(points), "in flight"), (opened(points), "requests/s")):
        if not loads:
            continue
        last = loads[-1]
        here = f"at {last.load:g} {unit}"
        if last.error_share > ERRORS:
            kinds = sorted({kind for point in last.repeats for kind in point.errors_by_kind})
            return f"{here} {last.error_share:.0%} of the requests failed ({', '.join(kinds)})"
        return _past_the_knee(loads, here) if unit == "in flight" else _overloaded(loads, here)
    return None


def _past_the_knee(loads: Sequence[Load], here: str) -> str | None:
    last, best = loads[-1], max(load.tokens_per_s for load in loads)
    if last.tokens_per_s < FALL * best:
        return f"{here} throughput fell to {last.tokens_per_s / best:.0%} of the best"
    base = next((load for load in reversed(loads) if 4 * load.load <= last.load), None)
    if base is None or not base.tokens_per_s or last.ttft_p95_s is None or base.ttft_p95_s is None:
        return None
    since = [load for load in loads if load.load > base.load]
    gain = max(load.tokens_per_s for load in since) / base.tokens_per_s
    if gain < GAIN and last.ttft_p95_s > 2 * base.ttft_p95_s:
        return (
            f"{here} throughput is {last.tokens_per_s / base.tokens_per_s:.0%} of that at {base.load:g}, and p95 TTFT "
            f"is {last.ttft_p95_s / base.ttft_p95_s:.1f} times as long"
        )
    return None


def _overloaded(loads: Sequence[Load], here: str) -> str | None:
    """Two rates in a row that it could not keep up with: one may be bad luck."""
    worst = [
        any(point.saturation is not None and point.saturation.label == "overloaded" for point in load.repeats)
        for load in loads[-2:]
    ]
    if len(worst) == 2 and all(worst):
        return f"{here} and at the rate before, requests came faster than they were answered"
    return None
