"""The policy study's machinery, on a small synthetic trace: what it plays, what it counts, what it writes."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from benchmarks.policy_study import page as page_module
from benchmarks.policy_study.cases import SEEDS, TRACES, Case, cases
from benchmarks.policy_study.numbers import Cell, Table, compare
from benchmarks.policy_study.page import write_page
from benchmarks.policy_study.picture import chart
from benchmarks.policy_study.play import Study, read_pools
from benchmarks.policy_study.record import RESULTS, Record, settings
from benchmarks.policy_study.workload import superposed

from kilocard.routing.registry import POLICIES
from kilocard.sim.scenario import PoolModel
from kilocard.workload.request import WorkloadRequest


@pytest.fixture(scope="module")
def pools() -> dict[str, PoolModel]:
    return read_pools()


def trace(seconds: int = 300) -> list[WorkloadRequest]:
    """Two a second, mostly short; each tenth begins like all other tenths."""
    rng = Random(1)
    found = []
    for number in range(2 * seconds):
        long = number % 10 == 0
        blocks = (1, 2, 3, 100 + number) if long else ()
        tokens = 4 * 512 if long else rng.randrange(50, 900)
        found.append(WorkloadRequest(number / 2, tokens, 200 if long else 40, blocks=blocks, block_tokens=512))
    return found


@pytest.fixture
def study(pools: dict[str, PoolModel]) -> Study:
    return Study(dict.fromkeys(TRACES, trace()), pools, shorter=0.1, replicas=4)


def test_superposed_copies_have_the_rate_and_prompts_of_their_own() -> None:
    found = superposed(trace(), 11.0, 60.0, Random(3))
    assert len(found) == pytest.approx(660, abs=40)
    assert all(a.at_s <= b.at_s < 60.0 for a, b in pairwise(found))
    firsts = {each.blocks[0] for each in found if each.blocks}
    assert len(firsts) == 6, "five whole copies and half of one, each with a first block of its own"


def test_a_copy_that_reaches_the_traces_end_goes_on_at_its_beginning() -> None:
    found = superposed(trace(100), 2.0, 300.0, Random(4))
    assert len(found) == pytest.approx(600, abs=10)
    assert max(b.at_s - a.at_s for a, b in pairwise(found)) < 1.1


def test_every_case_has_a_key_of_its_own_and_all_policies_get_the_same_arrivals(study: Study) -> None:
    everything = list(cases())
    assert len({case.key for case in everything}) == len(everything)
    study.capacities["a100/azure-code"] = 4.0
    one, other = (study.work(Case("load", "azure-code", policy, 1))[0] for policy in ("round_robin", "queue_depth"))
    assert one == other and one is not study.work(Case("load", "azure-code", "queue_depth", 2))[0]


def test_capacity_is_what_more_than_enough_traffic_gets(study: Study) -> None:
    able = study.capacity("a100", "azure-code")
    light = study.run(Case("load", "azure-code", "queue_depth", 1, 50))
    heavy = study.run(Case("load", "azure-code", "queue_depth", 1, 300))
    assert 1 < able < 100
    assert light["ttft_p95_s"] < 1.5 and light["completed_share"] == 1.0
    assert heavy["ttft_p95_s"] > 2 * light["ttft_p95_s"]


def test_a_study_is_written_down_and_its_page_has_its_numbers(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = [Case("load", "azure-code", policy, seed, 80) for seed in SEEDS[:2] for policy in POLICIES]
    monkeypatch.setattr(page_module, "cases", lambda: iter(played))
    record = Record(settings(study.pools), study.capacities)
    for case in played:
        record.runs[case.key] = {"case": case.told(), "numbers": study.run(case)}
    record.write(tmp_path / "results.json")
    again = Record.read(tmp_path / "results.json")
    assert again is not None and again.runs == record.runs and again.settings == record.settings
    write_page(again, tmp_path)
    text = (tmp_path / "policy-study.md").read_text()
    cell = Table(record.runs).cell("ttft_p95_s", Case("load", "azure-code", "queue_depth", 0, 80))
    assert cell is not None
    assert f"{cell.mean:.2f} ±{cell.half_range:.2f}" in text
    assert "still missing" not in text
    assert "`prefix_affinity` is first or equal in 1 of 1 cases" in text


def test_policies_differ_where_all_seeds_agree() -> None:
    slow, quick, mixed = Cell({1: 2.0, 2: 4.0}), Cell({1: 1.5, 2: 3.5}), Cell({1: 1.5, 2: 4.5})
    found = compare(iter([(quick, slow), (mixed, slow), (slow, quick), (slow, slow)]))
    assert (found.cells, found.lower, found.higher, found.same) == (4, 1, 1, 2)
    assert slow.mean == 3.0 and slow.half_range == 1.0


def test_a_chart_has_a_line_for_each_policy() -> None:
    svg = chart("t", "x", "y", {name: [(50, 0.1), (100, 10.0)] for name in POLICIES})
    assert svg.count("<polyline") == len(POLICIES) and svg.startswith("<svg") and ">0.1<" in svg and ">10<" in svg


@pytest.mark.skipif(not RESULTS.exists(), reason="nothing has been played")
def test_the_page_in_docs_is_the_one_that_the_results_make(tmp_path: Path) -> None:
    record = Record(**json.loads(RESULTS.read_text()))
    write_page(record, tmp_path)
    for made in [tmp_path / "policy-study.md", *(tmp_path / "policy-study").iterdir()]:
        kept = page_module.DOCS / made.relative_to(tmp_path)
        assert kept.read_text() == made.read_text(), f"{kept.name}: python -m benchmarks.policy_study --page"
