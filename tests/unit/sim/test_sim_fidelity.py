"""A measured load beside the same requests on a profile: no error where the profile is the engine's own."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from kilocard.perf.builtin import CPU_SMOL
from kilocard.perf.profile import Profile
from kilocard.perf.seen_steps import Stream
from kilocard.sim.fidelity import Figures, measured, modelled
from kilocard.sim.played import Asked, play
from kilocard.sim.prediction import Measurement


def seen(profile: Profile, rate_per_s: float, *, count: int = 80, begins_s: float = 100.0) -> Measurement:
    """Poisson arrivals on an engine with this profile, on a clock that shows `begins_s` at first."""
    rng = Random(3)
    at_s = 0.0
    requests = []
    for _ in range(count):
        at_s += rng.expovariate(rate_per_s)
        requests.append(Asked(rng.randint(30, 300), rng.randint(20, 60), at_s=at_s))
    streams = [
        Stream(begins_s + each.sent_s, each.asked.prompt, tokens_s=tuple(begins_s + at for at in each.tokens_s))
        for each in play(profile, requests)
    ]
    return Measurement("a trace", tuple(streams), tuple(asked.output for asked in requests), begins_s, begins_s + at_s)


def test_an_open_loop_on_the_engines_own_profile_has_no_error() -> None:
    measurement = seen(CPU_SMOL, 2.0)
    assert modelled(measurement, CPU_SMOL).figures.errors(measured(measurement)) == pytest.approx((0,) * 5, abs=1e-6)


def test_an_engine_that_is_too_slow_on_paper_shows_in_all_numbers_when_it_is_overloaded() -> None:
    measurement = seen(CPU_SMOL, 20.0)
    slower = replace(CPU_SMOL, **{name: 1.2 * getattr(CPU_SMOL, name) for name in TIMES})
    throughput, ttft_p50, ttft_p95, tpot_p50, tpot_p95 = modelled(measurement, slower).figures.errors(
        measured(measurement)
    )
    assert throughput == pytest.approx(1 / 1.2 - 1, abs=0.02), "the same tokens take longer"
    assert min(ttft_p50, ttft_p95) > 0.2 and tpot_p50 == pytest.approx(0.2, abs=0.05) == tpot_p95


TIMES = ("step_fixed_s", "prefill_token_s", "decode_seq_s", "kv_token_s")


def test_limits_of_the_engine_go_into_the_prediction() -> None:
    measurement = seen(CPU_SMOL, 2.0)
    alone = modelled(measurement, CPU_SMOL, max_num_seqs=1).figures
    assert alone.ttft_p50_s > 2 * measured(measurement).ttft_p50_s


def test_a_closed_loop_is_looked_at_within_its_window() -> None:
    rng = Random(5)
    requests = [Asked(rng.randint(30, 300), rng.randint(20, 60)) for _ in range(300)]
    played = play(CPU_SMOL, requests, concurrency=6)
    measurement = Measurement(
        "6 at once",
        tuple(Stream(each.sent_s, each.asked.prompt, tokens_s=tuple(each.tokens_s)) for each in played[6:]),
        tuple(each.asked.output for each in played[6:]),
        played[12].sent_s,
        played[-1].sent_s,
        carried=6,
        concurrency=6,
        cut_off=True,
    )
    found = measured(measurement)
    assert isinstance(found, Figures)
    assert modelled(measurement, CPU_SMOL).figures.errors(found) == pytest.approx((0,) * 5, abs=0.08), (
        "300 requests leave some chance"
    )


def test_preemptions_are_counted_as_well() -> None:
    measurement = seen(CPU_SMOL, 20.0)
    assert modelled(measurement, CPU_SMOL).preemptions == 0
    assert modelled(measurement, CPU_SMOL, kv_tokens=12 * CPU_SMOL.block_size).preemptions > 0
