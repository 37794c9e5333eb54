"""benchmarks/bench_truth without its servers: what counts as the same request, and when tools agree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from benchmarks.bench_truth import __main__ as program
from benchmarks.bench_truth import rounds, tables
from benchmarks.bench_truth.engine_says import EngineSays
from benchmarks.bench_truth.load import Load
from benchmarks.bench_truth.measured import Answered, Measured, means, turnaround, while_full
from benchmarks.bench_truth.request import SAME, fields_of
from benchmarks.bench_truth.rounds import Row
from benchmarks.bench_truth.verdict import Verdict, beside
from hypothesis import given
from hypothesis import strategies as st

LOAD = Load(4, 64, 48, 0.0, 32, 1)
ENGINE = EngineSays(32, 0.020, 1.0)


def row(number: int, tool: str, *, speed: float = 1.0, ttft: float = 0.1, load: Load = LOAD) -> Row:
    fast = 160.0 * speed
    said = Measured(tool, 32, fast, ttft, ttft, 0.020 / speed, 1.0 / speed, 64.0, 48.0, 0.001, fast)
    return Row(number, load, said, ENGINE)


def test_text_length_and_nothing_are_not_part_of_what_is_asked() -> None:
    vllm = {"model": "m", "prompt": "a b", "max_tokens": 3, "logprobs": None, "repetition_penalty": 1.0}
    guidellm = {"repetition_penalty": 1.0, "model": "m", "prompt": "c", "max_completion_tokens": 4}
    assert fields_of(vllm) == fields_of(guidellm) == {"model": "m", "repetition_penalty": 1.0}
    assert fields_of(vllm | {"temperature": 0}) != fields_of(vllm), "0 is no nothing"
    assert fields_of(SAME) == SAME


def several(ratios: Sequence[float], load: Load = LOAD, **by: str) -> list[Row]:
    """Rounds in which `theirs` is so many times as fast, or whose TTFT is so many times as long, as `ours`."""
    rows = []
    for number, ratio in enumerate(ratios):
        rows.append(row(number, "ours", load=load))
        what = {"speed": ratio} if by.get("what", "speed") == "speed" else {"ttft": 0.1 * ratio}
        rows.append(row(number, "theirs", load=load, **what))
    return rows


def test_a_machine_that_slows_down_is_no_difference_between_tools() -> None:
    rows = [row(each, tool, speed=pace) for each, pace in enumerate((1.0, 0.8, 0.6)) for tool in ("ours", "theirs")]
    assert tables.verdict(rows) is Verdict.AGREE
    table = tables.agreement(rows)
    assert "| 4 at once, 64 → 48 tokens, 3 rounds | output tok/s | 128.0 (67%) | 128.0 (67%) | +0.0% (+0.0% to" in table
    assert "- theirs: 64.0 in, 48.0 out; 1.0 ms" in table


MIXED, ALONE = replace(LOAD, spread=0.5), replace(LOAD, concurrency=1)


@pytest.mark.parametrize(
    ("load", "what", "ratio", "verdict"),
    [
        (LOAD, "speed", 0.98, Verdict.AGREE),
        (LOAD, "speed", 0.96, Verdict.APART),  # throughput: 3 %
        (MIXED, "speed", 0.98, Verdict.AGREE),
        (MIXED, "speed", 0.96, Verdict.APART),  # while all slots are busy
        (MIXED, "ttft", 1.04, Verdict.AGREE),
        (MIXED, "ttft", 1.06, Verdict.APART),  # times: 5 %, from the free slot
        (LOAD, "ttft", 2.0, Verdict.AGREE),  # all start in one step
        (ALONE, "ttft", 1.06, Verdict.APART),  # nothing else is in the way
    ],
)
def test_agreement_is_judged_against_each_peer(load: Load, what: str, ratio: float, verdict: Verdict) -> None:
    rows = several([ratio, ratio * 1.001, ratio * 0.999], load, what=what)
    assert tables.verdict(rows) is tables.verdict(rows, load.place) is verdict
    same = [replace(each, measured=replace(rows[0].measured, tool="same")) for each in rows[::2]]
    assert tables.verdict([*rows[::2], *same, *rows[1::2]]) is verdict, "the farthest of several decides"
    assert ("**too far**" in tables.agreement(rows)) is (verdict is Verdict.APART)


@pytest.mark.parametrize(
    ("ratios", "verdict"),
    [
        ([1.0], Verdict.OPEN),
        ([0.94, 1.08, 1.066], Verdict.OPEN),  # rounds as they were: 6.6 % in the middle of three says little
        ([1.02, 1.03, 1.01, 1.02], Verdict.AGREE),
        ([1.06, 1.058, 1.062, 1.06], Verdict.APART),
        ([1.04, 1.06, 1.05, 1.055], Verdict.OPEN),  # about the limit
        ([0.9, 0.91, 0.9], Verdict.APART),
        ([0.9, 1.1] * 2, Verdict.OPEN),
        ([0.9, 1.1] * 12, Verdict.AGREE),
    ],
)
def test_rounds_decide_only_what_they_show(ratios: list[float], verdict: Verdict) -> None:
    assert beside(ratios, 0.05).verdict is verdict


@given(st.floats(0.9, 1.1), st.integers(0, 1000))
def test_a_verdict_is_seldom_wrong(true: float, seed: int) -> None:
    rng = Random(seed)
    found = [beside([true * math.exp(rng.gauss(0, 0.03)) for _ in range(10)], 0.05) for _ in range(40)]
    wrong = Verdict.APART if abs(true - 1) < 0.05 else Verdict.AGREE if not 0.92 < true < 1.08 else None
    assert sum(each.verdict is wrong for each in found) <= 10


def test_what_lengths_by_chance_decide_is_shown_and_not_judged() -> None:
    rows = several([0.96, 0.961, 0.96], MIXED)
    full = [replace(each, measured=replace(each.measured, full_tokens_per_s=160.0)) for each in rows]
    table = tables.agreement(full)
    assert tables.verdict(full) is Verdict.AGREE
    assert "| 4 at once, 64 → 24–72 tokens, 3 rounds | output tok/s |" in table and "not judged" in table


def test_a_file_of_an_earlier_version_has_no_throughput_of_full_slots() -> None:
    old = [
        replace(each, measured=replace(each.measured, full_tokens_per_s=math.nan)) for each in several([1] * 3, MIXED)
    ]
    assert tables.verdict(old) is Verdict.OPEN
    assert tables.verdict([*old, *rounds.joined([old, several([1.0, 1.001, 1.0], MIXED)])[6:]]) is Verdict.AGREE


def test_more_rounds_are_for_loads_that_are_not_decided() -> None:
    rows = [*several([1.0] * 3), *several([0.97, 1.04, 1.0], MIXED)]
    assert program._open([LOAD, MIXED], rows) == [MIXED]


def test_no_token_counts_that_comes_when_slots_stay_empty() -> None:
    # two slots, 10 tokens a second each; the last request starts at 2.0 and the other slot is empty from 3.0 on
    starts = [(0.0, 10), (0.0, 20), (1.0, 20), (2.0, 30)]
    asked = [Answered(began, 0.1, 0.1, 0.1 * tokens, 64, tokens) for began, tokens in starts]
    assert while_full(asked, slots=2) == pytest.approx(20.0)
    assert means("theirs", 16.0, asked, 2).full_tokens_per_s == pytest.approx(20.0)
    assert math.isnan(while_full(asked[:3], slots=2))


def test_each_tool_stands_beside_the_engine() -> None:
    line = tables.engine([row(0, "ours", speed=0.5)]).splitlines()[-1]
    assert line == (
        "| 4 at once, 64 → 48 tokens | ours | 40.0 ms, 20.0 ms | +100.0% | 2000.0 ms, 1000.0 ms | +100.0% |"
    )


def test_rounds_of_several_times_come_together(tmp_path: Path) -> None:
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    for path in paths:
        rounds.write([row(0, "ours"), row(1, "ours"), row(1, "theirs", speed=0.9)], path)
    back = rounds.read(paths)
    assert [each.round for each in back] == [0, 1, 1, 2, 3, 3]
    assert back[5] == row(3, "theirs", speed=0.9)


def test_the_first_request_of_each_slot_is_in_no_mean() -> None:
    late = [Answered(1.01 + each, 0.1 * (1 + each), 0.02, 1.0, 64, 11) for each in range(3)]
    first = [Answered(0.0, 0.9, 0.05, 1.0, 9, 3)] * 2
    found = means("theirs", 150.0, [late[2], first[0], *late[:2], first[1]], slots=2)
    assert (found.requests, found.ttft_s, found.tpot_s, found.output_tokens) == (3, pytest.approx(0.2), 0.02, 11)
    assert found.turnaround_s == pytest.approx(0.01), "from the last token of a first request to the next in its slot"
    assert found.ttft_of_slot_s == pytest.approx(0.21)


def test_a_slot_that_frees_is_taken_by_the_next_start() -> None:
    ends = [1.0, 1.001, 2.0, 5.0]
    assert turnaround([0.0, 1.010, 1.021, 2.030, 7.0], ends) == pytest.approx((0.010 + 0.020 + 0.030) / 3)
