"""Virtual time has the last word on the number of replicas."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from kilocard.perf.builtin import A100_7B
from kilocard.perf.gpus import gpu
from kilocard.perf.operating_point import capacity
from kilocard.perf.profile import Profile
from kilocard.perf.read_config import read_architecture
from kilocard.perf.setting import EngineSetting
from kilocard.planner.demand import Demand, Objective
from kilocard.planner.fleet import Sizing
from kilocard.planner.layouts import Pins
from kilocard.planner.machine import Machines
from kilocard.planner.replica import Question
from kilocard.planner.search import search
from kilocard.planner.settle import Settled, faster, settle
from kilocard.workload.lengths import Fixed

SHAPE = read_architecture(
    {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16,
        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 8192, "vocab_size": 128256,
    },
    name="small",
)  # fmt: skip
#: 8 slots, so that trials are short
REPLICA = replace(A100_7B, max_num_seqs=8)
EACH = capacity(REPLICA, 64, 100).requests_per_s


def asked(rate: float, profile: Profile = REPLICA, ttft: float | None = None, **other: Any) -> Question:
    return Question(
        architecture=SHAPE,
        gpus=(gpu("A100-80GB"),),
        demand=Demand(Fixed(64), Fixed(100), rate_per_s=rate, objective=Objective.of(ttft, None)),
        setting=EngineSetting(),
        machines=other.pop("machines", Machines()),
        pins=Pins(1, 1),
        sizing=Sizing.measured(**other),
        measured=profile,
        longest=164,
    )


def settled(question: Question) -> Settled:
    found = search(question)
    return settle(found.question, found.candidates[0], Random(1))


def test_the_closed_form_s_number_stands_where_its_tail_meets_the_objective() -> None:
    found = settled(asked(9.0 * EACH))
    assert (found.before, found.choice.replicas, found.forgiven) == (9, 9, False)
    assert found.trial is not None and found.trial.ttft_s.p95 <= 2.0


def test_replicas_are_added_until_the_tail_meets_it_and_no_more() -> None:
    patient, sharp = (settled(asked(9.0 * EACH, ttft=ttft)) for ttft in (2.0, 0.06))
    assert sharp.before == patient.before < sharp.choice.replicas
    assert sharp.trial is not None and sharp.trial.ttft_s.p95 <= 0.06
    # one fewer was tried, with the same requests by chance, and missed
    fewer = settled(asked(9.0 * EACH, ttft=0.06, machines=Machines(gpus=sharp.choice.replicas - 1)))
    assert fewer.trial is not None and fewer.trial.ttft_s.p95 > 0.06


def test_a_jump_over_several_is_taken_back_to_the_fewest() -> None:
    found = settled(asked(40.0 * EACH, ttft=0.06))
    fewer = settled(asked(40.0 * EACH, ttft=0.06, machines=Machines(gpus=found.choice.replicas - 1)))
    assert fewer.choice.replicas == found.choice.replicas - 1 > found.before
    assert found.trial is not None and found.trial.ttft_s.p95 <= 0.06
    assert fewer.trial is not None and fewer.trial.ttft_s.p95 > 0.06


def test_gpus_that_are_not_there_are_not_added() -> None:
    found = settled(asked(9.0 * EACH, ttft=0.06, machines=Machines(gpus=9)))
    assert found.choice.replicas == 9 and found.choice.enough
    assert found.trial is not None and found.trial.ttft_s.p95 > 0.06


def test_a_miss_within_the_error_of_a_measurement_adds_no_replica_and_is_told() -> None:
    tail, better = settled(asked(9.0 * EACH)).trial, settled(asked(9.0 * EACH, faster(REPLICA, 0.01))).trial
    assert tail is not None and better is not None and better.ttft_s.p95 < tail.ttft_s.p95
    nearly = tail.ttft_s.p95 * 0.95
    assert better.ttft_s.p95 < nearly
    found = settled(asked(9.0 * EACH, ttft=nearly))
    assert found.choice.replicas == 9 and found.forgiven
    sharper = settled(asked(9.0 * EACH, ttft=tail.ttft_s.p95 * 0.8))
    assert sharper.choice.replicas > 9, "an objective that was asked for is not missed by a fifth"


STEPS = [0.85 + 0.05 * step for step in range(8)]


@pytest.mark.parametrize("ttft", [None, 0.1])
def test_a_faster_replica_never_needs_more_of_them(ttft: float | None) -> None:
    counts = [settled(asked(9.0 * EACH, faster(REPLICA, each - 1), ttft)).choice.replicas for each in STEPS]
    assert all(more >= fewer for more, fewer in pairwise(counts)) and counts[0] > counts[-1]


@pytest.mark.parametrize("ttft", [None, 0.1])
def test_a_higher_rate_never_needs_fewer(ttft: float | None) -> None:
    counts = [settled(asked(each * 9.0 * EACH, ttft=ttft)).choice.replicas for each in STEPS]
    assert all(fewer <= more for fewer, more in pairwise(counts)) and counts[0] < counts[-1]
