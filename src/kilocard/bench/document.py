"""results.json: every field of it, with its unit and meaning. docs/reference/bench-results.md is written from here.

A field that is new gets a default, so that older files load. A field that changes its meaning, or goes, raises SCHEMA.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

SCHEMA = "kilocard.bench/1"

Resource = Literal["memory", "compute", "admission", "client", "none", "unknown"]


def _(text: str) -> Meta:
    return Meta(description=text)


class Spread(Struct, kw_only=True):
    """One latency over all requests of a point, in seconds."""

    mean: Annotated[float | None, _("null: it would not agree with the other means; `withheld` says why")]
    p50: float
    p95: float
    p99: float
    max: float
    n: Annotated[int, _("values that these are of: requests, or gaps for `itl_s`")]
    few: Annotated[list[str], _("percentiles of too few values: p99 of under 100, p95 of under 20")] = field(
        default_factory=list
    )
    at_least: Annotated[
        list[str], _("of requests cut off at the end, the value is only known to be larger: true of these, too")
    ] = field(default_factory=list)
    cut_off: Annotated[int, _("values that are only known to be larger than when the request was cut off")] = 0


class Lengths(Struct, kw_only=True):
    """Tokens of a request."""

    mean: float
    min: int
    p50: float
    max: int


class Slo(Struct, kw_only=True):
    """What a request has to meet to count as goodput. null: no such bound."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None


class Goodput(Struct, kw_only=True):
    """Requests that were complete and met every bound of the SLO."""

    requests_per_s: Annotated[float, _("per second of the window")]
    share: Annotated[float | None, _("of the decided ones, 0 to 1; failed ones count as not good")]
    undecided: Annotated[int, _("cut off at the end before it was known")]


class Saturation(Struct, kw_only=True):
    """Did the server keep up with an open loop?"""

    label: Annotated[
        Literal["stable", "backlogged", "overloaded", "unknown"],
        _("stable: no queue grew; backlogged: it kept up behind a standing queue; overloaded: it fell behind"),
    ]
    reason: str
    in_flight_first_third: float
    in_flight_last_third: float


class EngineSeen(Struct, kw_only=True):
    """The engine's own gauges within the window. null: not seen (never 0)."""

    running_max: float | None = None
    running_mean: float | None = None
    waiting_max: float | None = None
    waiting_mean: float | None = None
    kv_usage_max: Annotated[float | None, _("share of the KV cache, 0 to 1")] = None
    kv_usage_mean: float | None = None
    preemptions: Annotated[float | None, _("within the window")] = None
    prefix_hit_share: Annotated[float | None, _("of the prompt tokens (or blocks) asked for, by the counters")] = None
    gpu_memory_gib_max: float | None = None
    gpu_busy_mean: Annotated[float | None, _("share of time, 0 to 1")] = None
    samples: int = 0


class ClientSeen(Struct, kw_only=True):
    """Was the load tester itself the limit?"""

    cpu_share: Annotated[float, _("of one core")]
    lag_p99_s: Annotated[float, _("how late its own timers ran")]
    limited: Annotated[str | None, _("in words, when this point's numbers are the client's and not the server's")]


class Histogram(Struct, kw_only=True):
    """Counts between bounds; values outside are in the first and the last count."""

    bounds: Annotated[list[float], _("seconds, rising, one more than counts")]
    counts: list[int]


class Series(Struct, kw_only=True):
    """What happened over the window. Lists are of the same length; null: not seen."""

    at_s: Annotated[list[float], _("since the window's start")]
    in_flight: Annotated[list[float], _("requests that the client waited for")]
    output_tokens_per_s: Annotated[list[float], _("delivered since the moment before")]
    engine_at_s: Annotated[list[float], _("moments of the engine's samples")] = field(default_factory=list)
    running: list[float | None] = field(default_factory=list)
    waiting: list[float | None] = field(default_factory=list)
    kv_usage: list[float | None] = field(default_factory=list)
    preemptions: Annotated[list[float | None], _("since the window's start")] = field(default_factory=list)
    gpu_memory_gib: list[float | None] = field(default_factory=list)
    gpu_busy: list[float | None] = field(default_factory=list)


class PointResult(Struct, kw_only=True):
    """One load: a concurrency, a rate, or (both null) a trace."""

    concurrency: Annotated[int | None, _("closed loop: requests in flight")] = None
    rate_per_s: Annotated[float | None, _("open loop: arrivals asked for")] = None
    repeat: Annotated[int, _("0 for the first time at this load")] = 0
    started_s: Annotated[float, _("of the window, since the run's start")]
    window_s: Annotated[float, _("wall time that every rate here is divided by; warm-up excluded")]
    warmup: Annotated[int, _("requests before the window, in no number here")]
    requests: Annotated[
        int, _("that count: ended within the window (closed loop), intended within it (open loop, trace)")
    ]
    completed: Annotated[int, _("of them, answered whole")]
    errors: Annotated[int, _("of them, failed; requests cut off at the end are no errors")]
    errors_by_kind: dict[str, int]
    cut_off: Annotated[int, _("of them, still running when the measurement ended")]
    offered_per_s: Annotated[float, _("intended requests per second of the window")]
    requests_per_s: Annotated[float, _("completions within the window, per second of it")]
    output_tokens_per_s: Annotated[float, _("tokens delivered within the window, per second of it")]
    total_tokens_per_s: Annotated[float, _("the same and the prompts of the requests answered within it")]
    input_tokens: Annotated[int | None, _("of the completed, by usage; null: the server sent none")]
    output_tokens: Annotated[int | None, _("of the completed, by usage; null: the server sent none")]
    cached_tokens: Annotated[int | None, _("prompt tokens found in the prefix cache, where the server says so")] = None
    lengths: Annotated[
        dict[str, Lengths], _("of the completed: asked_input, input, asked_output, output; the server's by usage")
    ] = field(default_factory=dict)
    tokens_counted_by: Annotated[
        Literal["usage", "arrivals", "mixed"],
        _("arrivals: the server sent no usage, so each arrival counts as one token"),
    ]
    first_kinds: Annotated[dict[str, int], _("what the first token was: content, reasoning or tool_calls")] = field(
        default_factory=dict
    )
    finish_reasons: dict[str, int] = field(default_factory=dict)
    in_flight_mean: Annotated[float, _("requests that the client waited for")]
    ttft_s: Annotated[Spread | None, _("first token − intended time")]
    tpot_s: Annotated[Spread | None, _("(end to end − TTFT) / (output tokens − 1)")]
    itl_s: Annotated[Spread | None, _("each gap between two arrivals; an arrival may carry several tokens")]
    e2e_s: Annotated[Spread | None, _("last token − intended time")]
    withheld: Annotated[dict[str, str], _("numbers that are not given, and why")]
    goodput: Annotated[Goodput | None, _("null: no SLO was given")] = None
    saturation: Annotated[Saturation | None, _("null: a closed loop never offers more than it gets")] = None
    engine: EngineSeen
    client: ClientSeen
    histograms: Annotated[dict[str, Histogram], _("of ttft_s, tpot_s, itl_s, e2e_s: 20 bounds a decade")]
    series: Series


class Knee(Struct, kw_only=True):
    """Where more load stops giving more throughput."""

    concurrency: Annotated[int | None, _("closed loop: the measured concurrency at the knee; null: not reached")] = None
    rate_per_s: Annotated[float | None, _("open loop: the highest measured rate that was held")] = None
    reached: bool
    method: Annotated[str, _("how it was found")]
    between: Annotated[list[float], _("the loads that the knee lies between: [low, high]")] = field(
        default_factory=list
    )
    output_tokens_per_s: Annotated[float | None, _("at the knee, mean of the repeats")] = None
    capacity: Annotated[float | None, _("the best of the curve: output tokens/s, requests/s in an open loop")] = None
    agreement: Annotated[float | None, _("share of resamples of the repeats that give the same knee")] = None
    confidence: Annotated[str, _("in words")] = ""
    says: Annotated[str, _("the answer in words")] = ""


class Finding(Struct, kw_only=True):
    """What to know before believing the numbers, or what they mean."""

    severity: Annotated[Literal["error", "warning", "note"], _("error: do not use these numbers")]
    text: str


class TargetSeen(Struct, kw_only=True):
    """What was measured."""

    url: Annotated[str, _("without user name, password and query")]
    model: str = ""
    path: str = ""
    engine: Annotated[str | None, _("null: not recognised")] = None
    engine_version: str | None = None
    max_num_seqs: Annotated[int | None, _("sequence slots of the engine, where known")] = None
    kv_tokens: Annotated[int | None, _("tokens of the KV cache, where known")] = None
    block_size: Annotated[int | None, _("tokens of a block of it, where known")] = None


class About(Struct, kw_only=True):
    """How it was measured."""

    started_at: Annotated[str, _("ISO 8601, UTC")] = ""
    kilocard: Annotated[str, _("version")] = ""
    arguments: Annotated[dict[str, Any], _("of the command line, secrets left out")] = field(default_factory=dict)
    seed: int | None = None
    prompts: Annotated[str, _("where the prompts came from, in words")] = ""
    request: Annotated[
        dict[str, Any],
        _("fields of each request as they were sent, without its text and length; a server's speed depends on them"),
    ] = field(default_factory=dict)
    machine: Annotated[str, _("that the load tester ran on")] = ""
    notes: list[str] = field(default_factory=list)


class Results(Struct, kw_only=True):
    """All of results.json."""

    schema: Annotated[str, _(f"`{SCHEMA}`")] = SCHEMA
    target: TargetSeen
    about: About
    slo: Slo | None = None
    single: Annotated[
        dict[str, float] | None, _("one request at a time: prefill and decode apart, where it was measured")
    ] = None
    points: list[PointResult]
    knee: Knee
    limit: Annotated[Resource, _("the resource that ended the growth; none: it was not reached")]
    limit_evidence: list[str]
    best_max_num_seqs: Annotated[int | None, _("null: these measurements do not say")] = None
    advice: list[str]
    stopped_early: Annotated[str | None, _("why the sweep ended before its last load")] = None
    findings: list[Finding] = field(default_factory=list)
