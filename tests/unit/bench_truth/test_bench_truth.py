"""benchmarks/bench_truth without its servers: what counts as the same request, and when tools agree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.bench_truth import rounds, tables
from benchmarks.bench_truth.engine_says import EngineSays
from benchmarks.bench_truth.load import Load
from benchmarks.bench_truth.measured import Answered, Measured, means, turnaround
from benchmarks.bench_truth.request import SAME, fields_of
from benchmarks.bench_truth.rounds import Row

LOAD = Load(4, 64, 48, 0.0, 32, 1)
ENGINE = EngineSays(32, 0.020, 1.0)


def row(number: int, tool: str, *, speed: float = 1.0, ttft: float = 0.1, load: Load = LOAD) -> Row:
    said = Measured(tool, 32, 160.0 * speed, ttft, ttft, 0.020 / speed, 1.0 / speed, 64.0, 48.0, 0.001)
    return Row(number, load, said, ENGINE)


def test_text_length_and_nothing_are_not_part_of_what_is_asked() -> None:
    vllm = {"model": "m", "prompt": "a b", "max_tokens": 3, "logprobs": None, "repetition_penalty": 1.0}
    guidellm = {"repetition_penalty": 1.0, "model": "m", "prompt": "c", "max_completion_tokens": 4}
    assert fields_of(vllm) == fields_of(guidellm) == {"model": "m", "repetition_penalty": 1.0}
    assert fields_of(vllm | {"temperature": 0}) != fields_of(vllm), "0 is no nothing"
    assert fields_of(SAME) == SAME


def test_a_machine_that_slows_down_is_no_difference_between_tools() -> None:
    rows = [row(each, tool, speed=pace) for each, pace in enumerate((1.0, 0.8, 0.6)) for tool in ("ours", "theirs")]
    table, agree = tables.agreement(rows)
    assert agree
    assert "| 4 at once, 64 → 48 tokens | output tok/s | 128.0 (67%) | 128.0 (67%) | +0.0% |" in table
    assert "- theirs: 64.0 in, 48.0 out" in table


@pytest.mark.parametrize(
    ("spread", "other", "agree"),
    [
        (0.0, {"speed": 0.98}, True),
        (0.0, {"speed": 0.96}, False),  # throughput: 3 %
        (0.5, {"ttft": 0.104}, True),
        (0.5, {"ttft": 0.106}, False),  # times: 5 %
        (0.0, {"ttft": 0.2}, True),  # all start in one step
        (0.5, {"speed": 0.94}, False),  # TPOT
    ],
)
def test_agreement_is_judged_against_each_peer(spread: float, other: dict[str, float], agree: bool) -> None:
    load = replace(LOAD, spread=spread)
    rows = [row(0, "ours", load=load), row(0, "same", load=load)]
    rows.append(replace(rows[0], measured=row(0, "other", **other).measured))
    table, found = tables.agreement(rows)
    assert found is agree
    assert ("**too far**" in table) is not agree


def test_what_lengths_by_chance_decide_is_shown_and_not_judged() -> None:
    load = replace(LOAD, spread=0.5)
    rows = [row(0, "ours", load=load), row(0, "other", speed=0.96, load=load)]
    table, agree = tables.agreement(rows)
    assert agree and "| 4 at once, 64 → 24–72 tokens | output tok/s |" in table and "+4.2%, not judged" in table
    assert not tables.agreement([*rows[:1], row(0, "other", ttft=0.2, load=load)])[1]


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
