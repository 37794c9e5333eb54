"""The engine that jumps gives what the reference gives: same events, times, counters and tokens, whatever comes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from kilocard.perf.profile import Profile
from kilocard.sim.engine import Engine
from kilocard.sim.fast import FastEngine
from kilocard.sim.step import SECOND

PROFILE = Profile(
    name="test",
    step_fixed_s=0.011,
    weights_s=0.003,
    prefill_token_s=91.7e-6,
    decode_seq_s=0.21e-3,
    sequence_s=37e-6,
    kv_token_s=41.37e-9,
    attention_s=1.9e-9,
    kv_tokens=16 * 400,
    max_num_seqs=8,
    max_num_batched_tokens=256,
    block_size=16,
)


class Asked(NamedTuple):
    prompt: int
    output: int
    at_ms: int
    #: leaves so long after its arrival; over 900: never
    life_ms: int
    #: which shared text its prompt begins with, and blocks of it
    text: int
    shared: int
    priority: int


def times(engine: Engine) -> list[tuple[int, int]]:
    """(end, tokens) of each step, from the stretches."""
    assert engine.stretches is not None
    ends = []
    for stretch in engine.stretches:
        at = stretch.start_ps
        for step in range(stretch.steps):
            at += stretch.first_ps + step * stretch.growth_ps
            ends.append((at, stretch.tokens))
    return ends


def play(engine: Engine, requests: list[Asked], looks: list[int]) -> list[Any]:
    """Everything that can be seen from outside. `looks`: milliseconds at which somebody reads the gauges."""
    what: list[tuple[int, int, Asked | None, str]] = []
    for number, asked in enumerate(requests):
        what.append((asked.at_ms, 1, asked, f"r{number}"))
        if asked.life_ms <= 900:
            what.append((asked.at_ms + asked.life_ms, 2, None, f"r{number}"))
    what += [(at, 3, None, "") for at in looks]
    seen: list[Any] = []
    for at_ms, kind, new, name in sorted(what, key=lambda each: each[:2]):
        now = at_ms / 1000
        seen += engine.advance(now)
        if new is not None and new.prompt + new.output <= engine.largest_request:
            blocks = tuple(new.text * 100 + place for place in range(new.shared))
            engine.add(name, new.prompt, new.output, now, blocks=blocks, block_tokens=16, priority=new.priority)
        elif kind == 2:
            seen.append((now, engine.abort(name)))
        elif kind == 3:
            seen.append((now, engine.running, engine.waiting, engine.kv_usage))
        if at_ms % 3:  # starts the step that begins now, or lets others come first
            engine.next_at()
    turns = 0
    while not engine.idle:
        seen += engine.advance(engine.next_at())
        turns += 1
        assert turns < 100_000, "the engine never drains"
    seen += engine.advance(1e9)
    seen.append((engine.running, engine.waiting, engine.kv_usage))
    return seen


asked = st.builds(
    Asked,
    prompt=st.integers(1, 300),
    output=st.integers(1, 120),
    at_ms=st.integers(0, 600),
    life_ms=st.integers(0, 2500),
    text=st.integers(0, 2),
    shared=st.integers(0, 12),
    priority=st.integers(0, 2),
)


@given(
    requests=st.lists(asked, min_size=1, max_size=25),
    looks=st.lists(st.integers(0, 1500), max_size=6),
    blocks=st.one_of(st.integers(3, 40), st.just(400)),
    seqs=st.integers(1, 12),
    budget=st.one_of(st.integers(1, 40), st.just(256)),
    threshold=st.sampled_from([0, 0, 0, 10]),
    watermark=st.sampled_from([0.0, 0.0, 0.1]),
    policy=st.sampled_from(["fcfs", "fcfs", "priority"]),
    ahead=st.booleans(),
    prefix_cache=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_both_engines_give_the_same(
    requests: list[Asked],
    looks: list[int],
    blocks: int,
    seqs: int,
    budget: int,
    threshold: int,
    watermark: float,
    policy: Any,
    ahead: bool,
    prefix_cache: bool,
) -> None:
    """SIM-8."""
    profile = replace(PROFILE, kv_tokens=16 * blocks, max_num_seqs=seqs, max_num_batched_tokens=budget)
    limits: dict[str, Any] = {
        "prefix_cache": prefix_cache,
        "policy": policy,
        "async_scheduling": ahead,
        "watermark": watermark,
        "long_prefill_token_threshold": threshold,
        "record": True,
    }
    slow, fast = Engine(profile, **limits), FastEngine(profile, **limits)
    assert play(fast, requests, looks) == play(slow, requests, looks)
    assert fast.counters == slow.counters
    assert times(fast) == times(slow)
    assert fast.pool.used == slow.pool.used == 0


def test_a_preemption_is_reported_by_both_at_the_same_output() -> None:
    """Found by chance: who was thrown out comes back in small chunks, and one token is left when the group forms."""
    profile = replace(PROFILE, kv_tokens=16 * 13, max_num_batched_tokens=16)
    requests = [Asked(prompt, output, 0, 999, 0, 0, 0) for prompt, output in ((38, 52), (57, 45), (38, 56))]
    slow, fast = (kind(profile, long_prefill_token_threshold=10) for kind in (Engine, FastEngine))
    assert play(fast, requests, []) == play(slow, requests, [])
    assert fast.counters == slow.counters
    assert slow.counters.preemptions_reported == 2


def test_a_quiet_engine_takes_a_handful_of_turns_for_many_tokens() -> None:
    fast = FastEngine(replace(PROFILE, kv_tokens=16 * 4000), record=True)
    for name in "abcd":
        fast.add(name, 100, 2000, 0.0)
    turns = 0
    while not fast.idle:
        fast.advance(fast.next_at())
        turns += 1
    assert fast.counters.generation_tokens == 8000
    assert turns <= 5
    assert fast.stretches is not None
    assert len(fast.stretches) <= 5


def test_times_are_exact_sums() -> None:
    """One stream: each step's time is its parts' sum, and the last token's time is the sum of all steps."""
    fast = FastEngine(PROFILE)
    fast.add("a", 100, 1000, 0.0)
    events = []
    while not fast.idle:
        events += fast.advance(fast.next_at())
    prefill = round(PROFILE.step_s(100, 0, 0, 100 * 50) * SECOND) + 100 * 41370
    decode = sum(round(PROFILE.step_s(0, 1, 0) * SECOND) + 41370 * (100 + i) for i in range(1, 1000))
    assert [(each.kind, each.at_s) for each in events] == [
        ("first", prefill / SECOND),
        ("finished", (prefill + decode) / SECOND),
    ]
