"""The engine's gauges within a window, and what happened over it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from kilocard.bench.delivery import STEPS, Delivery, in_flight, mean_in_flight
from kilocard.bench.document import EngineSeen, Series
from kilocard.bench.point import EngineSample, Point
from kilocard.core import statistics


def engine_seen(point: Point) -> EngineSeen:
    samples = _within(point)

    def of(gauge: Callable[[EngineSample], float | None]) -> list[float]:
        return [value for sample in samples if (value := gauge(sample)) is not None]

    running, waiting, kv = of(lambda s: s.running), of(lambda s: s.waiting), of(lambda s: s.kv_usage)
    memory, busy = of(lambda s: s.gpu_memory_gib), of(lambda s: s.gpu_busy)
    asked, hits = growth(of(lambda s: s.prefix_queries)), growth(of(lambda s: s.prefix_hits))
    return EngineSeen(
        running_max=max(running, default=None),
        running_mean=statistics.mean(running) if running else None,
        waiting_max=max(waiting, default=None),
        waiting_mean=statistics.mean(waiting) if waiting else None,
        kv_usage_max=max(kv, default=None),
        kv_usage_mean=statistics.mean(kv) if kv else None,
        preemptions=growth(of(lambda s: s.preemptions)),
        prefix_hit_share=hits / asked if asked and hits is not None else None,
        gpu_memory_gib_max=max(memory, default=None),
        gpu_busy_mean=statistics.mean(busy) if busy else None,
        samples=len(samples),
    )


def growth(counter: Sequence[float]) -> float | None:
    """What a counter counted; where it fell the engine started again, at 0. None: fewer than two samples."""
    if len(counter) < 2:
        return None
    return sum(now - before if now >= before else now for before, now in pairwise(counter))


def series(point: Point, flow: Delivery) -> Series:
    window = point.ended_s - point.started_s
    edges = [point.started_s + window * step / STEPS for step in range(STEPS + 1)]
    spans = in_flight(point)
    samples = _within(point)
    first = next((sample.preemptions for sample in samples if sample.preemptions is not None), None)
    return Series(
        at_s=[round(edge - point.started_s, 3) for edge in edges[1:]],
        in_flight=[round(mean_in_flight(spans, a, b), 3) for a, b in pairwise(edges)],
        output_tokens_per_s=[round(tokens * STEPS / window, 3) for tokens in flow.steps],
        engine_at_s=[round(sample.at_s - point.started_s, 3) for sample in samples],
        running=[sample.running for sample in samples],
        waiting=[sample.waiting for sample in samples],
        kv_usage=[sample.kv_usage for sample in samples],
        preemptions=[
            None if sample.preemptions is None or first is None else sample.preemptions - first for sample in samples
        ],
        gpu_memory_gib=[sample.gpu_memory_gib for sample in samples],
        gpu_busy=[sample.gpu_busy for sample in samples],
    )


def _within(point: Point) -> list[EngineSample]:
    return [sample for sample in point.samples if point.started_s <= sample.at_s <= point.ended_s]
