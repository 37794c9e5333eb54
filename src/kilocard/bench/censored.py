"""Mean and percentiles where some values are only known to be larger than something: requests cut off at the end.

To leave them out would flatter exactly the slow ones; to take them at their last sight as well. The estimate of Kaplan
and Meier (1958) does neither: each value that is only a lower bound gives its weight to the larger ones. Weight that
is left behind the largest known value has no place to go: a percentile in there is only a lower bound itself.
Without cut-off values all of this is the plain mean and the plain percentiles of core/statistics.
"""

from __future__ import annotations

from collections.abc import Sequence

from kilocard.bench.document import Spread
from kilocard.core import statistics

SHARES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}


def spread(known: Sequence[float], lower_bounds: Sequence[float] = ()) -> Spread | None:
    """None where no value is known."""
    if not known:
        return None
    count = len(known) + len(lower_bounds)
    few = [name for name, share in SHARES.items() if count * (1 - share) < 1 - 1e-9]
    if not lower_bounds:
        ordered = sorted(known)
        p50, p95, p99 = (statistics.of_sorted(ordered, share) for share in SHARES.values())
        return Spread(mean=statistics.mean(ordered), p50=p50, p95=p95, p99=p99, max=ordered[-1], n=count, few=few)
    values, weights, left = _kaplan_meier(known, lower_bounds)
    at: dict[str, float] = {}
    at_least = []
    for name, share in SHARES.items():
        if share > 1 - left + 1e-9:
            at_least.append(name)
            at[name] = values[-1]
        else:
            at[name] = statistics.weighted_percentile(values, weights, min(1.0, share / (1 - left)))
    largest = max(values[-1], max(lower_bounds))
    mean = sum(value * weight for value, weight in zip(values, weights, strict=True)) + left * values[-1]
    if left > 1e-9:
        at_least.append("mean")
    if largest > values[-1]:
        at_least.append("max")
    return Spread(
        mean=mean, p50=at["p50"], p95=at["p95"], p99=at["p99"], max=largest, n=count, few=few, at_least=at_least,
        cut_off=len(lower_bounds),
    )  # fmt: skip


def _kaplan_meier(known: Sequence[float], lower_bounds: Sequence[float]) -> tuple[list[float], list[float], float]:
    """The known values in order, the weight of each, and the weight that lies beyond the last of them."""
    # At a tie the known value comes first: the other one was still running then.
    events = sorted([(value, 0) for value in known] + [(value, 1) for value in lower_bounds])
    values, weights = [], []
    surviving, at_risk = 1.0, len(events)
    for value, cut in events:
        if not cut:
            values.append(value)
            weights.append(surviving / at_risk)
            surviving -= surviving / at_risk
        at_risk -= 1
    return values, weights, max(0.0, surviving)
