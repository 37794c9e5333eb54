"""All that was seen at one load: one point of a sweep."""

from __future__ import annotations

from dataclasses import dataclass, field

from kilocard.bench.record import RequestRecord


@dataclass(slots=True)
class EngineSample:
    """The engine's own gauges, and the GPUs', at one moment. None: not seen (never 0)."""

    at_s: float
    running: float | None = None
    waiting: float | None = None
    #: share, 0 to 1
    kv_usage: float | None = None
    #: counters since the engine's start
    preemptions: float | None = None
    prefix_queries: float | None = None
    prefix_hits: float | None = None
    #: summed over the GPUs that were seen, GiB; mean share of time busy, 0 to 1
    gpu_memory_gib: float | None = None
    gpu_busy: float | None = None


@dataclass(slots=True)
class ClientHealth:
    """Was the load tester itself the limit?"""

    #: of one core
    cpu_share: float = 0.0
    #: how wrong the client may have made a time, 99th percentile: the larger of lateness and blur
    lag_p99_s: float = 0.0
    #: how long after its time it acted (sends, slots taken up): mean and 99th percentile
    late_mean_s: float = 0.0
    late_p99_s: float = 0.0
    #: how far off a time of arrival may be, 99.9th percentile of all arrivals: a wrong time spoils two gaps, and a few
    #: of them move the gaps' 99th percentile
    blur_p999_s: float = 0.0
    #: of the time in which it wanted a processor, the share in which it had none
    starved_share: float = 0.0
    #: a reason in words when the client's numbers can't be trusted
    limited: str | None = None


@dataclass(slots=True)
class Point:
    """Exactly one of `concurrency` (closed loop) and `rate_per_s` (open loop) is set; a trace sets neither."""

    #: of the measured window, warm-up excluded
    started_s: float
    ended_s: float
    concurrency: int | None = None
    rate_per_s: float | None = None
    #: requests whose intended time lies in the window, failed ones and ones cut off at its end included
    records: list[RequestRecord] = field(default_factory=list)
    #: sent before the window, for warm-up
    warmup: int = 0
    #: those of them that still ran when the window began: what they delivered in it is throughput, but their latencies
    #: are warm-up's
    carried: list[RequestRecord] = field(default_factory=list)
    samples: list[EngineSample] = field(default_factory=list)
    client: ClientHealth = field(default_factory=ClientHealth)
    repeat: int = 0
