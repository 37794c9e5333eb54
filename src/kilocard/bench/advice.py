"""What to do about it, in sentences with numbers."""

from __future__ import annotations

from collections.abc import Sequence

from kilocard.bench.curve import Load, closed, opened
from kilocard.bench.document import Knee, PointResult, Slo
from kilocard.bench.limit import Limit

#: of decided requests that have to meet an SLO at a load that is advised
GOOD_SHARE = 0.99


def advise(points: Sequence[PointResult], knee: Knee, limit: Limit, slo: Slo | None = None) -> list[str]:
    """The most important first."""
    loads = closed(points) or opened(points)
    said = [*_of_the_limit(limit, knee, loads)]
    if slo is not None and loads:
        said.append(_of_the_slo(loads, "in flight" if closed(points) else "requests/s"))
    return said


def _of_the_limit(limit: Limit, knee: Knee, loads: Sequence[Load]) -> list[str]:
    slots = limit.best_max_num_seqs
    if limit.resource == "client":
        return ["Measure again from another machine, or with more processes: these numbers are the client's."]
    if limit.resource == "none":
        return [knee.says]
    if limit.resource == "unknown":
        return ["Measure an address whose /metrics can be read, so that memory and compute can be told apart."]
    if limit.resource == "memory":
        fits = "so many of these requests fit into the KV cache without preemption"
        if not limit.fell:
            fits += ", which steadies the latencies; throughput itself did not suffer"
        said = [f"Set max-num-seqs to {slots}: {fits}."] if slots else []
        return [
            *said,
            "For more at once, make room for KV: a higher gpu-memory-utilization, an FP8 KV cache, a shorter "
            "max-model-len if requests are shorter, weights of fewer bits, or one more GPU by tensor parallelism.",
        ]
    if limit.resource == "admission":
        if not limit.raise_it:
            return ["Raise the server's own limit of requests, or take no more than it admits."]
        seen = max((r for load in loads if (r := load.most(lambda p: p.engine.running_max)) is not None), default=0)
        why = "throughput still grew when" if limit.growing else "whether more would help is not seen, but"
        return [
            f"Raise max-num-seqs from {seen:.0f} to {2 * seen:.0f} and measure again: {why} the slots ran out while "
            "the KV cache had room."
        ]
    enough = f"{slots} slots (max-num-seqs) are enough: more run no faster, and each waits longer for its tokens."
    said = [enough] if slots else []
    return [
        *said,
        "For more throughput: one more replica, a faster card, or weights of fewer bits. More memory would not help.",
    ]


def _good_share(point: PointResult) -> float | None:
    return point.goodput.share if point.goodput else None


def _good_rate(point: PointResult) -> float | None:
    return point.goodput.requests_per_s if point.goodput else None


def _of_the_slo(loads: Sequence[Load], unit: str) -> str:
    meets = [load for load in loads if (share := load.mean_of(_good_share)) is not None and share >= GOOD_SHARE]
    if not meets:
        best = max(load.mean_of(_good_share) or 0.0 for load in loads)
        return f"No measured load met the SLO for {GOOD_SHARE:.0%} of its requests; the best was {best:.0%}."
    top = meets[-1]
    good = top.mean_of(_good_rate) or 0.0
    tail = "" if top is not loads[-1] else "; it was the largest, so more may be possible"
    return (
        f"Under the SLO run at most {top.load:g} {unit}: {good:.3g} good requests/s, {top.tokens_per_s:,.0f} output "
        f"tokens/s{tail}."
    )
