"""Points of a sweep as sim.engine gives them on virtual time: real shapes, known answers, no clock."""

from __future__ import annotations

import random
from array import array

from kilocard.bench.point import EngineSample, Point
from kilocard.bench.record import CUT_OFF, RequestRecord
from kilocard.perf.profile import Profile
from kilocard.sim.engine import Engine

#: about a small model on one card: 4 ms a step and 50 µs a sequence, so throughput bends far out
QUICK = Profile(
    name="quick",
    step_fixed_s=0.004,
    prefill_token_s=10e-6,
    decode_seq_s=50e-6,
    kv_token_s=0.0,
    kv_tokens=100_000,
    max_num_seqs=64,
    max_num_batched_tokens=2048,
)


def simulated_point(
    profile: Profile = QUICK,
    *,
    concurrency: int | None = None,
    rate: float | None = None,
    input_tokens: int = 64,
    output_tokens: tuple[int, int] = (40, 60),
    warmup_s: float = 2.0,
    window_s: float = 10.0,
    repeat: int = 0,
    seed: int = 0,
    slower: float = 1.0,
) -> Point:
    """A closed loop of `concurrency`, or Poisson arrivals of `rate`; `slower` stretches every step."""
    rng = random.Random(f"{seed} {repeat} {concurrency} {rate}")
    engine = Engine(profile)
    ended_s = warmup_s + window_s
    point = Point(warmup_s, ended_s, concurrency=concurrency, rate_per_s=rate, repeat=repeat)
    live: dict[str, tuple[RequestRecord, float]] = {}
    everything: list[RequestRecord] = []
    now, sampled = 0.0, 0.0
    upcoming = rng.expovariate(rate) if rate else float("inf")

    def send(at: float) -> None:
        record = RequestRecord(at, at, input_tokens, rng.randint(*output_tokens))
        name = f"r{len(everything)}"
        everything.append(record)
        live[name] = (record, 0.0)
        engine.add(name, input_tokens, record.asked_output, now)

    for _ in range(concurrency or 0):
        send(0.0)
    while now < ended_s:
        while upcoming <= now and rate:
            send(upcoming)
            upcoming += rng.expovariate(rate)
        step = engine.step(now)
        if step is None:
            now = min(upcoming, ended_s)
            continue
        now += step.duration_s * slower * rng.uniform(0.97, 1.03)
        for name, tokens in step.emitted:
            record, last = live[name]
            if tokens and record.first_s is None:
                record.first_s = now
            elif tokens:
                record.gaps_s.append(now - last)
            live[name] = (record, now)
        for name in step.finished:
            record, last = live.pop(name)
            record.last_s = record.done_s = last
            record.input_tokens, record.output_tokens = record.asked_input, record.asked_output
            record.finish_reason, record.first_kind, record.status = "length", "content", 200
            if concurrency and now < ended_s:
                send(now)
        if now - sampled >= 0.25:
            sampled = now
            counters = engine.counters
            point.samples.append(
                EngineSample(now, engine.running, engine.waiting, engine.kv_usage, counters.preempted, 0.0, 0.0)
            )
    for record, _last in live.values():
        record.error = CUT_OFF
    for record in everything:
        if record.intended_s >= warmup_s:
            point.records.append(record)
        else:
            point.warmup += 1
            if record.error == CUT_OFF or (record.last_s or 0.0) >= warmup_s:
                point.carried.append(record)
    return point


def record(
    at: float = 0.0, ttft: float = 0.1, gap: float = 0.01, tokens: int = 11, *, error: str | None = None
) -> RequestRecord:
    """One request as if a server had answered it with a token each `gap` seconds."""
    if error is not None:
        return RequestRecord(at, at, 8, tokens, error=error)
    last = at + ttft + gap * (tokens - 1)
    return RequestRecord(
        at, at, 8, tokens, first_s=at + ttft, last_s=last, done_s=last, input_tokens=8, output_tokens=tokens,
        gaps_s=array("d", [gap] * (tokens - 1)), finish_reason="length", first_kind="content", status=200,
    )  # fmt: skip
