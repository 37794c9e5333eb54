"""Prefill and decode apart, from requests that were sent one at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from kilocard.bench.record import RequestRecord
from kilocard.core import statistics


def single(prefills: Sequence[RequestRecord], decodes: Sequence[RequestRecord]) -> dict[str, float]:
    """Medians and a straight line, by name; seconds and tokens. Empty where nothing was answered.

    `ttft_s_at_512`: of prompts of 512 tokens. `prefill_fixed_s` and `prefill_s_per_token`: the line through those,
    by least squares. `decode_tpot_s`: seconds a token, alone on the server. `e2e_s`: of the whole answers.
    """
    found: dict[str, float] = {}
    by_length: dict[int, list[float]] = defaultdict(list)
    for record in prefills:
        if record.error is None and record.ttft_s is not None:
            by_length[record.input_tokens or record.asked_input].append(record.ttft_s)
    medians = {length: statistics.percentile(times, 0.5) for length, times in sorted(by_length.items())}
    found |= {f"ttft_s_at_{length}": ttft_s for length, ttft_s in medians.items()}
    if len(medians) > 1:
        fixed, per_token = _line(list(medians.items()))
        found |= {"prefill_fixed_s": fixed, "prefill_s_per_token": per_token}
    whole = [record for record in decodes if record.error is None]
    tpots = [tpot for record in whole if (tpot := record.tpot_s) is not None]
    if tpots:
        found["decode_tpot_s"] = statistics.percentile(tpots, 0.5)
    if whole:
        found["e2e_s"] = statistics.percentile([record.e2e_s or 0.0 for record in whole], 0.5)
    return found


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Height at 0 and rise of the straight line with the least squares."""
    mean_x = statistics.mean([x for x, _ in points])
    mean_y = statistics.mean([y for _, y in points])
    rise = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
    return mean_y - rise * mean_x, rise
