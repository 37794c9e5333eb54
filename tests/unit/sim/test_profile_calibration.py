"""Calibration finds the numbers of an engine that it only saw from outside, and predicts loads that it never saw."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from kilocard.core.errors import UsageError
from kilocard.perf.builtin import A100_7B, CPU_SMOL
from kilocard.perf.calibration import Fit, calibrate
from kilocard.perf.profile import Profile
from kilocard.perf.seen_steps import Stream, Watched
from kilocard.sim.played import Asked, Played, play
from kilocard.sim.prediction import Measurement, outcome, predicted
from kilocard.workload.lengths import Fixed, Length, Uniform

ROOFLINE = Profile(
    name="roofline",
    step_fixed_s=0.002,
    weights_s=0.011,
    prefill_token_s=45e-6,
    decode_seq_s=45e-6,
    sequence_s=20e-6,
    kv_token_s=60e-9,
    attention_s=5e-9,
    kv_tokens=300_000,
    max_num_seqs=256,
    max_num_batched_tokens=2048,
)


def blank(profile: Profile) -> Profile:
    """Its room, and no idea of its speed."""
    return replace(
        profile, step_fixed_s=1e-6, weights_s=0.0, prefill_token_s=0.0, decode_seq_s=0.0, sequence_s=0.0,
        kv_token_s=0.0, attention_s=0.0,
    )  # fmt: skip


def asked(inputs: Length, outputs: Length, count: int, seed: int = 1) -> list[Asked]:
    rng = Random(seed)
    return [Asked(inputs.draw(rng), outputs.draw(rng)) for _ in range(count)]


def seen(played: list[Played], jitter_s: float = 0.0, overhead_s: float = 0.0) -> list[Stream]:
    """As a client sees it: each token a little late, and the request sent a little before it arrived."""
    rng = Random(9)
    return [
        Stream(
            each.sent_s - overhead_s,
            each.asked.prompt,
            each.asked.cached,
            tuple(sorted(at_s + abs(rng.gauss(0, jitter_s)) for at_s in each.tokens_s)),
        )
        for each in played
    ]


def sweep(profile: Profile, inputs: Length, outputs: Length, *, jitter_s: float = 0.0) -> list[Watched]:
    return [
        Watched(seen(play(profile, asked(inputs, outputs, max(16, 3 * slots)), concurrency=slots), jitter_s))
        for slots in (1, 2, 4, 8, 16)
    ]


def value(fit: Fit, name: str) -> float:
    return fit.value(name)


def test_the_linear_form_is_found_again() -> None:
    fit = calibrate(sweep(CPU_SMOL, Uniform(20, 200), Uniform(20, 60), jitter_s=0.001), blank(CPU_SMOL))
    for name in ("step_fixed_s", "prefill_token_s", "decode_seq_s", "kv_token_s"):
        assert value(fit, name) == pytest.approx(getattr(CPU_SMOL, name), rel=0.06), name
    assert value(fit, "weights_s") == 0
    assert fit.median_error < 0.01
    assert max(abs(lean or 0) for lean in fit.leaning) < 0.01


def test_the_roofline_form_is_found_again() -> None:
    fit = calibrate(sweep(ROOFLINE, Uniform(20, 3000), Uniform(20, 100)), blank(ROOFLINE))
    for name in ("weights_s", "prefill_token_s", "sequence_s", "kv_token_s", "attention_s"):
        assert value(fit, name) == pytest.approx(getattr(ROOFLINE, name), rel=0.06), name
    fixed = value(fit, "step_fixed_s") + value(fit, "weights_s")
    assert fixed == pytest.approx(ROOFLINE.step_fixed_s + ROOFLINE.weights_s, rel=0.01)


def test_experts_are_found_again_where_their_share_is_known() -> None:
    """A batch of 1 reads 8 of 128 experts, one of 32 most of them: no line goes through that."""
    true = replace(ROOFLINE, weights_s=0.002, experts_s=0.012, expert_share=8 / 128)
    base = replace(blank(true), experts_s=0.0)
    points = sweep(true, Uniform(20, 2000), Uniform(20, 100), jitter_s=0.0005)
    fit = calibrate(points, base)
    for name in ("experts_s", "prefill_token_s"):
        assert value(fit, name) == pytest.approx(getattr(true, name), rel=0.08), name
    unknown = calibrate(points, replace(base, expert_share=1.0))
    assert fit.p90_error < 0.7 * unknown.p90_error


@pytest.mark.parametrize("true", [CPU_SMOL, A100_7B, ROOFLINE], ids=lambda profile: profile.name)
def test_a_load_that_was_not_measured_is_predicted(true: Profile) -> None:
    inputs, outputs = Uniform(50, 400), Uniform(20, 80)
    fit = calibrate(sweep(true, inputs, outputs, jitter_s=0.001), blank(true))
    found = fit.profile(blank(true))
    assert found.provenance == "measured"
    for slots in (6, 32):
        requests = asked(inputs, outputs, 3 * slots, seed=77)
        real, modelled = (
            outcome(seen(played), 0.0, played[-1].sent_s)
            for played in (play(profile, requests, concurrency=slots) for profile in (true, found))
        )
        assert modelled.output_tokens_per_s == pytest.approx(real.output_tokens_per_s, rel=0.05)
        assert modelled.ttft_s == pytest.approx(real.ttft_s, rel=0.05)
        assert modelled.itl_s == pytest.approx(real.itl_s, rel=0.05)


def test_what_one_length_can_not_tell_is_said_and_left_at_0() -> None:
    fit = calibrate([Watched(seen(play(CPU_SMOL, asked(Fixed(64), Fixed(20), 20), concurrency=1)))], blank(CPU_SMOL))
    held = {term.name: term.held for term in fit.terms if term.held}
    assert held["attention_s"] is not None
    assert held["decode_seq_s"] is not None, "one stream at a time says nothing of a second one"
    assert value(fit, "attention_s") == 0


def test_what_one_length_can_not_tell_is_taken_from_the_roofline_where_it_agrees() -> None:
    points = sweep(ROOFLINE, Fixed(512), Uniform(20, 60), jitter_s=0.001)
    fit = calibrate(points, replace(blank(ROOFLINE), attention_s=5e-9))
    (attention,) = (term for term in fit.terms if term.name == "attention_s")
    assert attention.value == 5e-9
    assert attention.held is not None
    assert attention.held.endswith("the roofline's value")
    assert value(fit, "prefill_token_s") == pytest.approx(45e-6, rel=0.05), "the rest is fitted around it"


def test_what_a_request_costs_outside_the_engine_is_kept_apart() -> None:
    alone = play(CPU_SMOL, asked(Uniform(20, 300), Uniform(20, 40), 30), concurrency=1, turnaround_s=0.05)
    fit = calibrate([Watched(seen(alone, jitter_s=0.0003, overhead_s=0.02))], blank(CPU_SMOL))
    assert value(fit, "request_s") == pytest.approx(0.02, rel=0.1)
    assert value(fit, "prefill_token_s") == pytest.approx(CPU_SMOL.prefill_token_s, rel=0.03)


def test_a_few_stalls_of_the_client_do_not_bend_the_numbers() -> None:
    points = sweep(A100_7B, Uniform(50, 400), Uniform(20, 80))
    stalled = []
    for streams, _ in points:
        # for 80 ms, once every 2 s, nothing is read
        late = [
            tuple(at_s if at_s % 2 > 0.08 else at_s - at_s % 2 + 0.08 for at_s in each.tokens_s) for each in streams
        ]
        stalled.append(Watched([replace(each, tokens_s=times) for each, times in zip(streams, late, strict=True)]))
    fit = calibrate(stalled, blank(A100_7B))
    assert value(fit, "step_fixed_s") == pytest.approx(A100_7B.step_fixed_s, rel=0.03)
    assert value(fit, "prefill_token_s") == pytest.approx(A100_7B.prefill_token_s, rel=0.06)


def test_too_little_is_refused() -> None:
    with pytest.raises(UsageError, match="measure longer"):
        calibrate([Watched(seen(play(CPU_SMOL, [Asked(10, 20)], concurrency=1)))], CPU_SMOL)


def test_a_point_played_on_its_own_profile_is_itself() -> None:
    requests = asked(Uniform(20, 300), Uniform(20, 60), 120)
    played = play(CPU_SMOL, requests, concurrency=8)
    cold = Measurement(
        label="8",
        streams=tuple(seen(played)),
        asked_output=tuple(each.output for each in requests),
        started_s=0.0,
        ended_s=played[-1].sent_s,
        concurrency=8,
        cut_off=True,
    )
    real = outcome(cold.streams, 0.0, cold.ended_s)
    assert predicted(cold, CPU_SMOL) == real
    warm = replace(cold, started_s=played[8].sent_s, carried=8)
    by_arrivals = replace(cold, concurrency=None)
    for other in (warm, by_arrivals):
        real = outcome(other.streams, other.started_s, other.ended_s)
        assert predicted(other, CPU_SMOL).output_tokens_per_s == pytest.approx(real.output_tokens_per_s, rel=0.03)


def test_played_closed_loop_keeps_so_many_in_flight() -> None:
    played = play(CPU_SMOL, [Asked(10, 5)] * 12, concurrency=3)
    assert len(played) == 12
    assert all(len(each.tokens_s) == 5 for each in played)
    for moment in (each.sent_s for each in played[3:]):
        assert sum(each.sent_s <= moment < each.tokens_s[-1] for each in played) <= 3


def test_played_arrivals_wait_for_their_time() -> None:
    first, second = play(CPU_SMOL, [Asked(10, 2, at_s=5.0), Asked(10, 2, at_s=50.0)])
    assert first.tokens_s[0] == pytest.approx(5 + CPU_SMOL.step_s(10, 0, 10))
    assert second.tokens_s[0] == pytest.approx(50 + CPU_SMOL.step_s(10, 0, 10))
