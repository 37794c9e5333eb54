"""The closed form: laws that must hold, and agreement with the engine model run step by step."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilocard.perf.builtin import A100_7B, BUILTIN
from kilocard.perf.operating_point import BENCHMARK_ROUNDS, at_rate, capacity, most_running, operating_point
from kilocard.perf.profile import Profile
from kilocard.sim.engine import Engine

#: a 14B model on one H100, about
CARD = Profile(
    name="card",
    step_fixed_s=0.0018,
    prefill_token_s=45e-6,
    decode_seq_s=45e-6,
    kv_token_s=60e-9,
    kv_tokens=288_608,
    max_num_seqs=256,
    max_num_batched_tokens=8192,
    weights_s=0.0102,
    sequence_s=20e-6,
    attention_s=1e-9,
)


def simulate(profile: Profile, rate: float, prompt: int, output: int, count: int) -> tuple[float, float, float]:
    """(requests/s, mean TTFT, mean TPOT) of the middle of `count` Poisson arrivals, on virtual time."""
    engine, rng = Engine(profile), Random(1)
    arrivals, now = [], 0.0
    for _ in range(count):
        now += rng.expovariate(rate)
        arrivals.append(now)
    born: dict[str, float] = {}
    first: dict[str, float] = {}
    ends: list[tuple[float, float, float]] = []
    now, index = 0.0, 0
    while index < count or not engine.idle:
        if engine.idle and arrivals[index] > now:
            now = arrivals[index]
        while index < count and arrivals[index] <= now:
            engine.add(str(index), prompt, output, arrivals[index])
            born[str(index)] = arrivals[index]
            index += 1
        step = engine.step(now)
        assert step is not None
        now += step.duration_s
        for name, _ in step.emitted:
            first.setdefault(name, now)
        ends += [(now, first[name] - born[name], (now - first[name]) / (output - 1)) for name in step.finished]
    middle = [each for each in ends if arrivals[count // 4] <= each[0] <= arrivals[-1]]
    span = middle[-1][0] - middle[0][0]
    mean = [sum(each[i] for each in middle) / len(middle) for i in (1, 2)]
    return (len(middle) - 1) / span, mean[0], mean[1]


@pytest.mark.parametrize("load", [0.2, 0.5, 0.8])
@pytest.mark.parametrize(("prompt", "output"), [(1024, 128), (200, 200)])
def test_the_closed_form_agrees_with_the_engine_model(load: float, prompt: int, output: int) -> None:
    most = capacity(CARD, prompt, output).requests_per_s
    expected = at_rate(CARD, load * most, prompt, output)
    rate, ttft, tpot = simulate(CARD, load * most, prompt, output, count=700)
    assert rate == pytest.approx(load * most, rel=0.12)  # chance of the arrivals
    assert expected.tpot_s == pytest.approx(tpot, rel=0.12)
    assert expected.ttft_s == pytest.approx(ttft, rel=0.25)


def test_above_capacity_the_queue_grows_and_throughput_does_not() -> None:
    most = capacity(CARD, 1024, 128)
    beyond = at_rate(CARD, 1.2 * most.requests_per_s, 1024, 128)
    assert beyond.saturated
    assert beyond.ttft_s == math.inf
    assert beyond.output_tokens_per_s == most.output_tokens_per_s
    rate, _, tpot = simulate(CARD, 2 * most.requests_per_s, 1024, 128, count=1600)
    assert rate == pytest.approx(most.requests_per_s, rel=0.05)
    assert tpot == pytest.approx(most.tpot_s, rel=0.05)


def test_what_does_not_fit_waits() -> None:
    """KV room for 10 sequences: 40 streams give no more tokens than 10, and wait four times as long."""
    small = replace(CARD, kv_tokens=10 * (1024 + 77))
    assert most_running(small, 1024, 128) == pytest.approx(10, rel=0.01)
    full, over = operating_point(small, 10, 1024, 128), operating_point(small, 40, 1024, 128)
    assert over.output_tokens_per_s == pytest.approx(full.output_tokens_per_s, rel=0.01)
    assert over.e2e_s == pytest.approx(4 * full.e2e_s, rel=0.02)
    assert over.saturated and over.kv_share == pytest.approx(1, rel=0.01)


def test_the_token_budget_binds_before_the_slots() -> None:
    """2,048 tokens a step and prompts of 1,024 for outputs of 128: 227 decode at most (and wait for the prompts)."""
    bound = replace(CARD, max_num_batched_tokens=2048)
    point = operating_point(bound, 256, 1024, 128)
    assert point.saturated
    assert point.requests_per_s * (1024 + 127) * point.tpot_s == pytest.approx(2048, rel=0.02)


def test_cached_prompts_cost_their_cache_only() -> None:
    cold, warm = (operating_point(CARD, 64, 2000, 100, cached_tokens=cached) for cached in (0, 1984))
    assert warm.requests_per_s > 2 * cold.requests_per_s
    assert warm.tpot_s > operating_point(CARD, 64, 16, 100).tpot_s  # it is read, though


def test_the_way_in_and_asynchronous_scheduling_show_in_ttft_alone() -> None:
    slow = replace(CARD, request_s=0.05, steps_ahead=1)
    plain, late = operating_point(CARD, 4, 500, 100), operating_point(slow, 4, 500, 100)
    assert late.ttft_s == pytest.approx(plain.ttft_s + 0.05 + late.tpot_s, rel=0.02)
    assert late.tpot_s == pytest.approx(plain.tpot_s, rel=0.02)


def closed_loop(profile: Profile, streams: int, prompt: int, output: int) -> float:
    """Mean TTFT of a benchmark's run: all streams begin at once, lengths of 80 to 100 %, ten requests a stream."""
    engine, rng, now = Engine(profile), Random(5), 0.0
    born: dict[str, float] = {}
    first: dict[str, float] = {}

    def ask() -> None:
        name = str(len(born))
        engine.add(name, round(prompt * (0.8 + 0.2 * rng.random())), round(output * (0.8 + 0.2 * rng.random())), now)
        born[name] = now

    for _ in range(streams):
        ask()
    while (step := engine.step(now)) is not None:
        now += step.duration_s
        for name, _ in step.emitted:
            first.setdefault(name, now)
        for _ in step.finished:
            if len(born) < BENCHMARK_ROUNDS * streams:
                ask()
    return sum(first[name] - born[name] for name in born) / len(born)


@pytest.mark.parametrize(("streams", "prompt", "output"), [(32, 4096, 300), (64, 4096, 400), (16, 8192, 200)])
def test_a_run_begins_with_all_prompts_at_once(streams: int, prompt: int, output: int) -> None:
    played = closed_loop(CARD, streams, prompt, output)
    run = operating_point(CARD, streams, 0.9 * prompt, 0.9 * output, rounds=BENCHMARK_ROUNDS)
    assert run.ttft_s == pytest.approx(played, rel=0.25)


def test_the_first_wave_weighs_less_in_a_longer_run() -> None:
    once, ten, hundred = (operating_point(CARD, 64, 4096, 400, rounds=rounds) for rounds in (1, 10, 100))
    own = CARD.step_s(4096, 0, 0, 4096 * 2048)
    assert once.ttft_s > 30 * own  # half of the 64 prompts, on average
    assert (ten.ttft_s - hundred.ttft_s) / (once.ttft_s - hundred.ttft_s) == pytest.approx(0.09 / 0.99, rel=1e-6)
    assert once.tpot_s == ten.tpot_s == hundred.tpot_s
    assert once.requests_per_s < ten.requests_per_s < hundred.requests_per_s


def test_the_turnaround_is_of_benchmarks_alone() -> None:
    """Traffic does not wait for a client: the steady state and arrivals by chance have nothing of it."""
    late = replace(CARD, turnaround_steps=10)
    plain, slow = (operating_point(card, 8, 500, 300, rounds=BENCHMARK_ROUNDS) for card in (CARD, late))
    assert slow.ttft_s == pytest.approx(plain.ttft_s + 10 * slow.tpot_s, rel=0.1)
    assert operating_point(late, 8, 500, 300) == operating_point(CARD, 8, 500, 300)
    assert at_rate(late, 2, 500, 300) == at_rate(CARD, 2, 500, 300)


def test_the_articles_replica() -> None:
    """R8: 1,000 to 1,200 output tokens/s from 32 streams of 500 tokens; prompts take a part of it."""
    point = operating_point(replace(A100_7B, max_num_seqs=32), 32, 100, 500)
    assert 1000 <= point.output_tokens_per_s <= 1200


@settings(max_examples=60, deadline=None)
@given(
    profile=st.sampled_from(list(BUILTIN.values())),
    concurrency=st.floats(0.5, 2000),
    prompt=st.integers(1, 4000),
    output=st.integers(16, 2000),
)
def test_laws(profile: Profile, concurrency: float, prompt: int, output: int) -> None:
    point = operating_point(profile, concurrency, prompt, output)
    more = operating_point(profile, concurrency * 1.5, prompt, output)
    assert point.output_tokens_per_s > 0 and point.ttft_s > 0 and math.isfinite(point.ttft_s)
    # Little's law, as far as the request's time outside of the engine goes
    told = point.requests_per_s * (point.ttft_s + max(0, output - 1) * point.tpot_s)
    assert told == pytest.approx(point.concurrency, rel=0.05)
    assert more.output_tokens_per_s >= point.output_tokens_per_s * 0.95
    assert more.tpot_s >= point.tpot_s * 0.95
    assert more.ttft_s >= point.ttft_s * 0.9


def test_prompts_alone() -> None:
    """One token out: all of a request is its prefill, and the most is what the products allow."""
    point = operating_point(CARD, 64, 1000, 1)
    assert point.tpot_s == 0
    assert 0.7 / 1000 < point.requests_per_s * CARD.prefill_token_s < 1 / 1000


@pytest.mark.parametrize(("concurrency", "prompt", "output", "cached"), [(0, 1, 1, 0), (1, 0, 1, 0), (1, 5, 5, 6)])
def test_no_load_is_no_question(concurrency: float, prompt: int, output: int, cached: int) -> None:
    with pytest.raises(ValueError, match=r"no load|at least one|cached tokens"):
        operating_point(CARD, concurrency, prompt, output, cached_tokens=cached)
    with pytest.raises(ValueError, match="no load"):
        at_rate(CARD, 0, 10, 10)
