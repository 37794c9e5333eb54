"""Which resource ended the growth: memory, compute, admission, the client, or none yet. With the evidence.

Read at the loads past the knee, from the engine's own gauges:

    memory      the KV cache is full, or running requests were thrown out of it (preemptions)
    admission   requests wait while the KV cache has room: max-num-seqs (or the server's own door) holds them back
    compute     nothing waits, nothing is full, and still throughput does not grow
    client      the load tester could not make more load
    none        throughput still grew at the last load
    unknown     throughput is flat, and without gauges nobody can say why
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from kilocard.bench.caveats import in_order, places
from kilocard.bench.curve import Load, closed, opened
from kilocard.bench.document import Knee, PointResult, Resource
from kilocard.bench.knee import WORTH

#: share of the KV cache from which on it is full: the next request's blocks do not fit
FULL = 0.95
#: of the best throughput: less is a fall
FELL = 0.95
#: more than this share of refused requests is a door
REFUSED = 0.02
#: running requests count as pinned when two loads differ by no more
PINNED = 1.02


@dataclass(frozen=True, slots=True)
class Limit:
    resource: Resource
    evidence: tuple[str, ...]
    #: what max-num-seqs should be, where the measurements say so
    best_max_num_seqs: int | None = None
    #: max-num-seqs held requests back
    raise_it: bool = False
    #: and throughput was seen to grow up to there
    growing: bool = False
    #: a full KV cache cost throughput, and not only time in the queue
    fell: bool = False


def find_limit(points: Sequence[PointResult], knee: Knee, max_num_seqs: int | None = None) -> Limit:
    """`max_num_seqs`: the engine's setting, where it is known."""
    loads = closed(points) or opened(points)
    largest = max(points, key=in_order, default=None)
    if largest is not None and largest.client.limited:
        return Limit("client", (f"The load tester was the limit at {places([largest])}: {largest.client.limited}.",))
    if not loads:
        return Limit("unknown", ("There is no curve to read it from.",))
    last = loads[-1]
    refused = sum(count for load in loads for kind, count in refusals(load))
    if refused > REFUSED * sum(point.requests for point in last.repeats):
        kinds = ", ".join(sorted({kind for load in loads for kind, _ in refusals(load)}))
        return Limit("admission", (f"The server refused {refused} requests ({kinds}).",))
    if not knee.reached:
        if len(loads) == 1:
            return Limit("none", (f"One load, {places(last.repeats)}, does not show where the limit is.",))
        return Limit("none", (f"Throughput still grew at the largest load, {places(last.repeats)}.",))
    past = [load for load in loads if load.load > (knee.concurrency or knee.rate_per_s or 0.0)] or [last]
    running = max((r for load in past if (r := load.most(lambda p: p.engine.running_max)) is not None), default=None)
    waiting = max((w for load in past if (w := load.most(lambda p: p.engine.waiting_max)) is not None), default=None)
    kv = max((u for load in past if (u := load.most(lambda p: p.engine.kv_usage_max)) is not None), default=None)
    preempted = sum(load.most(lambda p: p.engine.preemptions) or 0.0 for load in past)
    if preempted or (kv is not None and kv >= FULL):
        return _memory(loads, past, preempted, kv)
    if running is None:
        return Limit("unknown", (f"{knee.says} The engine's gauges were not seen, so nobody can say why.",))
    free = "its KV use is not known" if kv is None else f"the KV cache was at most {kv:.0%} full"
    if waiting and _pinned(loads, past, running, max_num_seqs):
        return _admission(loads, running, waiting, free, max_num_seqs)
    if knee.concurrency is not None:
        shown = (
            f"{past[-1].load:g} in flight gave {past[-1].tokens_per_s:,.0f} output tokens/s, {knee.concurrency} gave "
        )
        shown += f"{knee.output_tokens_per_s or 0:,.0f}"
    else:
        shown = f"at most {knee.capacity or 0:.3g} requests/s were answered"
    evidence = f"{shown}, while up to {running:.0f} requests ran at once and {free}."
    return Limit("compute", (evidence,), best_max_num_seqs=_at_knee(loads, knee))


def refusals(load: Load) -> list[tuple[str, int]]:
    """Errors by which a server says "not now"."""
    return [
        (kind, count)
        for point in load.repeats
        for kind, count in point.errors_by_kind.items()
        if "429" in kind or "503" in kind
    ]


def _memory(loads: Sequence[Load], past: Sequence[Load], preempted: float, kv: float | None) -> Limit:
    evidence = []
    if kv is not None:
        evidence.append(f"The KV cache was up to {kv:.0%} full.")
    if preempted:
        evidence.append(f"{preempted:.0f} running requests were preempted and computed again.")
    # A leap is what the operator sees as "memory exhausted suddenly": the answer is to admit fewer.
    for before, after in pairwise(loads):
        low, high = before.most(lambda p: p.engine.kv_usage_max), after.most(lambda p: p.engine.kv_usage_max)
        if low is not None and high is not None and high >= FULL > low and high - low > 0.25:
            evidence.append(f"It went from {low:.0%} at {before.load:g} to {high:.0%} at {after.load:g}.")
    best = max(loads, key=lambda load: load.tokens_per_s)
    fell = past[-1].tokens_per_s < FELL * best.tokens_per_s
    if fell:
        evidence.append(
            f"Throughput fell from {best.tokens_per_s:,.0f} output tokens/s at {best.load:g} to "
            f"{past[-1].tokens_per_s:,.0f} at {past[-1].load:g}."
        )
    return Limit("memory", tuple(evidence), best_max_num_seqs=_what_fits(loads), fell=fell)


def _what_fits(loads: Sequence[Load]) -> int | None:
    """Requests that the KV cache holds without preemption, from what each took at the largest load that fitted."""
    fitting = [
        (running, usage)
        for load in loads
        if (usage := load.most(lambda p: p.engine.kv_usage_max)) is not None
        and usage < FULL
        and not load.most(lambda p: p.engine.preemptions)
        and (running := load.most(lambda p: p.engine.running_max))
    ]
    if not fitting:
        return None
    running, usage = fitting[-1]
    return max(int(running), int(running * FULL / usage)) if usage > 0.05 else int(running)


def _pinned(loads: Sequence[Load], past: Sequence[Load], running: float, max_num_seqs: int | None) -> bool:
    """Did the number of running requests stand still while more were there?"""
    if max_num_seqs is not None:
        return running >= max_num_seqs
    last = past[-1]
    waiting = last.most(lambda p: p.engine.waiting_max) or 0.0
    if last.repeats[0].concurrency is not None and running < 0.9 * last.load <= running + waiting:
        return True  # all that did not run waited
    seen = [r for load in loads if (r := load.most(lambda p: p.engine.running_max)) is not None]
    return (
        len(seen) > 1 and seen[-1] <= PINNED * seen[-2] and (last.repeats[0].concurrency is None or running < last.load)
    )


def _admission(loads: Sequence[Load], running: float, waiting: float, free: str, max_num_seqs: int | None) -> Limit:
    slots = max_num_seqs or int(running)
    evidence = [f"Never more than {running:.0f} requests ran while up to {waiting:.0f} waited, and {free}."]
    below = [(load.mean_of(lambda p: p.engine.running_max), load.tokens_per_s) for load in loads]
    grown = [(ran, got) for ran, got in below if ran is not None and ran < 0.8 * slots and got > 0]
    full = max(got for ran, got in below if ran is not None)
    if not grown:
        return Limit("admission", tuple(evidence), raise_it=True)
    ran, got = grown[-1]
    growing = full > got * (slots / ran) ** WORTH
    verb = "still grew" if growing else "hardly grew"
    evidence.append(
        f"Throughput {verb} up to there: {got:,.0f} output tokens/s with {ran:.0f} running, {full:,.0f} then."
    )
    if growing:
        return Limit("admission", tuple(evidence), raise_it=True, growing=True)
    return Limit("compute", tuple(evidence), best_max_num_seqs=slots)


def _at_knee(loads: Sequence[Load], knee: Knee) -> int | None:
    if knee.concurrency is not None:
        return knee.concurrency
    seen = [load.most(lambda p: p.engine.running_max) for load in loads if load.load == knee.rate_per_s]
    return int(seen[0]) if seen and seen[0] else None
