"""The speed model against measured points of real engines. Prints the tables (pytest -s); bounds leave room for refits.

What is bounded is each curve's error with numbers fitted on the other half of the curves.
"""

from __future__ import annotations

import math
from random import Random

import pytest
from tests.ground_truth import speed
from tests.ground_truth import speed_one_card as one_card
from tests.ground_truth.speed_points import Point, ladder, points, stages

from kilocard.core.statistics import percentile
from kilocard.perf.operating_point import capacity
from kilocard.sim.engine import Engine

#: KV room that the ladder's server printed
LADDER_KV_TOKENS = 288_608


@pytest.mark.parametrize(
    ("engine", "most", "most_ttft"), [("vllm", 0.12, 0.2), ("sglang", 0.15, 0.5), ("trtllm", 0.14, 0.35)]
)
def test_curves_kept_apart(engine: str, most: float, most_ttft: float) -> None:
    """The goal with priors only: throughput and TPOT off by 15 % at the median. TTFT hangs on settings not stated."""
    rows = [row for row in speed.kept_apart(engine) if not row.near_capacity]
    print("\n" + speed.table(engine, rows, lambda row: f"{row.point.gpu_name} {row.point.kind}"))
    assert speed.spread(row.throughput for row in rows).median < most
    assert speed.spread(row.tpot for row in rows).median < most
    assert speed.spread(row.ttft for row in rows).median < most_ttft
    assert len(rows) > 330


def test_shipped_numbers_are_those_of_the_fit() -> None:
    """prior_numbers.py, fitted on both halves, is no worse than what was judged on the other half."""
    for engine in speed.PRIORS:
        apart = [row for row in speed.kept_apart(engine) if not row.near_capacity]
        shipped = speed.check(row.point for row in apart)
        medians = [speed.spread(row.tpot for row in rows).median for rows in (shipped, apart)]
        assert medians[0] < medians[1] + 0.01


def test_stages_of_other_models() -> None:
    """vLLM 0.15.1 on H100, seven models and layouts at constant rates: end-to-end 15 %, TTFT 25 % where a fit has not
    seen them; with the shipped numbers, which have, 10 % and 20 %."""
    apart, shipped = speed.kept_apart_stages(), speed.check(stages())
    print("\n" + speed.table("0.15.1 stages", apart, lambda row: row.point.model))
    assert len(apart) == len(stages()) == 17
    for rows, most, most_ttft in ((apart, 0.15, 0.25), (shipped, 0.10, 0.20)):
        assert percentile([abs(row.throughput) for row in rows], 0.5) < most
        assert percentile([abs(row.ttft) for row in rows], 0.5) < most_ttft


def ladder_profile() -> speed.Profile:
    return speed.shipped_profile(ladder()[0], kv_tokens=LADDER_KV_TOKENS)


def test_the_ladder_in_closed_form() -> None:
    """Qwen3-14B: the upper half (above 8 req/s) is in no fit. Capacity 17.4 req/s within 10 %, knee from 12 to 17.4."""
    card = ladder_profile()
    most = capacity(card, 1024, 128).requests_per_s
    assert most == pytest.approx(17.4, rel=0.10)
    for point in ladder():
        told = speed.told_of(point, card)
        assert point.rate is not None and point.tpot_s is not None and point.ttft_s is not None
        assert told.requests_per_s == pytest.approx(point.requests_per_s, rel=0.08)
        assert told.tpot_s == pytest.approx(point.tpot_s, rel=0.15)
        if point.rate <= 12:
            assert told.ttft_s == pytest.approx(point.ttft_s, rel=0.20)
        else:
            assert told.saturated and math.isinf(told.ttft_s)


@pytest.mark.parametrize("rate", [8, 12, 18])
def test_the_ladder_by_the_engine_model(rate: int) -> None:
    """The same profile through sim.engine, Poisson arrivals, at most 256 in flight as the client had it."""
    point = next(each for each in ladder() if each.rate == rate)
    done, tpot = poisson(ladder_profile(), rate, seconds=60)
    assert point.requests_per_s is not None and point.tpot_s is not None
    assert done == pytest.approx(point.requests_per_s, rel=0.10)
    assert tpot == pytest.approx(point.tpot_s, rel=0.20)


def poisson(card: speed.Profile, rate: float, seconds: float) -> tuple[float, float]:
    """(requests/s, mean TPOT) of the second half. A request that finds 256 in flight waits at the client."""
    engine, rng, now, due, name = Engine(card), Random(3), 0.0, 0.0, 0
    waiting: list[float] = []
    first: dict[str, float] = {}
    tpots = []
    while now < seconds:
        while due <= now:
            waiting.append(due)
            due += rng.expovariate(rate)
        while waiting and engine.running + engine.waiting < 256:
            engine.add(str(name), 1024, 128, waiting.pop(0))
            name += 1
        step = engine.step(now)
        if step is None:
            now = due
            continue
        now += step.duration_s
        for request, _ in step.emitted:
            first.setdefault(request, now)
        if now > seconds / 2:
            tpots += [(now - first[request]) / 127 for request in step.finished]
    return len(tpots) / (seconds / 2), sum(tpots) / len(tpots)


def test_every_point_of_the_file_is_counted() -> None:
    """Coverage: what the tables leave out, by reason."""
    asked = {row.point.id for engine in speed.PRIORS for row in speed.kept_apart(engine)}
    table = [point for point in points() if point.source == "aic"]
    reasons = [reason(point) for point in table if point.id not in asked]
    # what has no other reason stands there twice
    assert reasons.count(None) == 94
    assert len(asked) / (len(table) - 94) > 0.8


def reason(point: Point) -> str | None:
    if not point.one_group or point.layout.tensor > 8:
        return "several groups of GPUs: what the table's concurrency counts is not said"
    if not point.ttft_s or not point.tpot_s:
        return "no TTFT or TPOT"
    if point.kv_tokens < point.input + point.output:
        return "weights leave no room for one request: the layout can't be what is printed"
    return None


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_one_card(engine: str) -> None:
    """With a profile fitted on every other point of a card, the rest within 5 % at the median. Every seventh card."""
    found = []
    for _, rows in sorted(one_card.cards(engine).items())[::7]:
        found += one_card.errors(rows)
    assert speed.spread(found).median < 0.05
    assert len(found) > 10
