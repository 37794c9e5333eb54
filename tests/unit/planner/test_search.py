"""The search: what is refused, what is chosen, and that more is never cheaper."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilocard.core.errors import PlanError
from kilocard.perf.architecture import Architecture
from kilocard.perf.builtin import A100_7B
from kilocard.perf.gpus import gpu
from kilocard.perf.layout import Layout
from kilocard.perf.read_config import read_architecture
from kilocard.perf.setting import EngineSetting
from kilocard.planner.advice import Verdict
from kilocard.planner.capacity import Limit
from kilocard.planner.demand import Demand, Objective
from kilocard.planner.fleet import Sizing
from kilocard.planner.layouts import Pins, layouts
from kilocard.planner.machine import Machines
from kilocard.planner.plan import Impossible, plan
from kilocard.planner.replica import Question
from kilocard.planner.search import evaluate, search
from kilocard.workload.lengths import Fixed

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}


def llama(**other: Any) -> Architecture:
    return read_architecture(LLAMA | other, name="llama")


EIGHT = llama()
SEVENTY = llama(hidden_size=8192, num_hidden_layers=80, num_attention_heads=64, intermediate_size=28672)


def question(
    architecture: Architecture = EIGHT,
    *gpus: str,
    rate: float | None = 5.0,
    inputs: int = 512,
    outputs: int = 256,
    ttft: float | None = None,
    tpot: float | None = None,
    **other: Any,
) -> Question:
    asked = Question(
        architecture=architecture,
        gpus=tuple(gpu(name) for name in gpus or ("H100-80GB",)),
        demand=Demand(Fixed(inputs), Fixed(outputs), rate_per_s=rate, objective=Objective.of(ttft, tpot)),
        setting=EngineSetting(),
        machines=Machines(),
        pins=Pins(),
        sizing=Sizing.modelled(),
        longest=inputs + outputs,
    )
    return replace(asked, **other)


def test_every_refusal_has_its_reason_and_nothing_is_dropped() -> None:
    asked = question(SEVENTY, "RTX3090-24GB", machines=Machines(per_node=4))
    found = search(asked)
    tried = list(layouts(SEVENTY, asked.machines, asked.pins))
    assert len(found.candidates) + len(found.refusals) == len(tried) > 0
    assert all(refusal.reason for refusal in found.refusals)


@settings(deadline=None, max_examples=15)
@given(st.floats(0.2, 60), st.floats(1.05, 4))
def test_more_load_is_never_cheaper(rate: float, more: float) -> None:
    one, other = (search(question(rate=each)).candidates[0] for each in (rate, rate * more))
    # equals in cost are told apart by other things, by 5 % and twice 20 % at the most
    assert other.cost_per_hour >= one.cost_per_hour * 0.99 / 1.05 / 1.44


@settings(deadline=None, max_examples=15)
@given(st.floats(0.012, 0.1), st.floats(1.1, 4))
def test_a_replica_carries_no_more_under_a_sharper_objective(tpot: float, slower: float) -> None:
    sharp, dull = (evaluate(question(tpot=each), gpu("H100-80GB"), Layout()).capacity for each in (tpot, tpot * slower))
    # each stops where its curve bends, at 97 % of its own most
    assert sharp.expected.output_tokens_per_s <= dull.expected.output_tokens_per_s / 0.95
    assert sharp.expected.tpot_s <= tpot


def test_the_choice_meets_the_objective_in_the_mean_and_on_virtual_time() -> None:
    found = plan(question(rate=20, ttft=0.3, tpot=0.02), Random(1))
    assert found.trial is not None and found.trial.tpot_s is not None
    assert found.choice.each.tpot_s <= 0.02 and found.trial.tpot_s.p95 <= 0.02
    assert found.trial.ttft_s.p95 <= 0.3
    assert found.choice.capacity.limit in {Limit.TPOT, Limit.TTFT}


def test_virtual_time_adds_replicas_where_the_tail_misses() -> None:
    # one replica carries it in the mean; the mean is half of the p95
    measured = replace(A100_7B, max_num_seqs=32)
    asked = question(
        rate=2.05,
        outputs=500,
        inputs=128,
        ttft=0.2,
        measured=measured,
        pins=Pins(1, 1),
        sizing=Sizing.measured(),
    )
    found = plan(asked, Random(1))
    assert found.before_trial == 1 < found.choice.replicas
    assert found.trial is not None and found.trial.ttft_s.p95 <= 0.2


def test_an_objective_that_nothing_meets_is_refused_with_what_one_stream_gets() -> None:
    with pytest.raises(Impossible) as error:
        plan(question(tpot=0.0001), Random(1))
    assert "even one stream alone" in error.value.message
    assert len(error.value.refusals) > 0


def test_the_usual_objective_gives_way_where_even_the_best_layout_can_not_meet_it() -> None:
    found = search(question(EIGHT, "T4-16GB", inputs=30_000, rate=0.01, machines=Machines(per_node=4)))
    assert found.candidates and found.question.demand.objective.ttft_s > 2.0


def test_tensor_groups_stay_in_a_machine_and_pipelines_cross_only_a_known_network() -> None:
    def sizes(machines: Machines) -> set[tuple[int, int]]:
        return {(each.tensor, each.pipeline) for each in layouts(SEVENTY, machines, Pins())}

    alone = sizes(Machines(per_node=4))
    assert max(tensor for tensor, _ in alone) == 4 and all(t * p <= 4 for t, p in alone)
    joined = sizes(Machines(per_node=4, network_gbit_s=100, rdma=True))
    assert (4, 2) in joined and max(tensor for tensor, _ in joined) == 4


def test_gpus_that_there_are_bound_the_replicas() -> None:
    found = search(question(rate=500, machines=Machines(gpus=4, per_node=2), pins=Pins(tensor=2, pipeline=1)))
    [only] = found.candidates
    assert only.replicas == 2 and not only.enough
    uneven = search(question(rate=None, machines=Machines(gpus=5, per_node=3), pins=Pins(tensor=2, pipeline=1)))
    assert uneven.candidates[0].replicas == 2  # one pair in each machine; a pair does not reach across


def test_nvlink_and_pcie_get_different_answers() -> None:
    def best(link: str) -> Layout:
        machines = Machines(gpus=8, link=link)
        return search(question(SEVENTY, "A100-80GB", rate=None, inputs=1024, machines=machines)).candidates[0].layout

    assert best("nvlink").pipeline == 1 and best("nvlink").tensor >= 4
    assert best("pcie").pipeline > 1 or best("pcie").tensor < best("nvlink").tensor


def test_types_are_compared_by_what_the_load_costs_on_them() -> None:
    both = search(question(EIGHT, "A100-80GB", "H100-80GB", rate=20)).candidates
    costs = [each.cost_per_hour for each in both]
    assert {each.gpu.name for each in both} == {"A100-80GB", "H100-80GB"}
    assert costs[0] <= min(costs) * 1.05


def test_latent_attention_is_offered_data_parallel() -> None:
    latent = read_architecture(
        {
            "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "hidden_size": 2048,
            "num_hidden_layers": 27, "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 102400,
            "kv_lora_rank": 512, "q_lora_rank": None, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
            "v_head_dim": 128, "intermediate_size": 10944, "moe_intermediate_size": 1408, "n_routed_experts": 64,
            "n_shared_experts": 2, "num_experts_per_tok": 6, "first_k_dense_replace": 1,
            "max_position_embeddings": 32768, "torch_dtype": "bfloat16",
        }
    )  # fmt: skip
    shared = [each for each in layouts(latent, Machines(), Pins()) if each.data > 1]
    assert shared and all(each.expert == each.data and each.tensor == 1 for each in shared)
    copies, own = (
        evaluate(question(latent, rate=None), gpu("H100-80GB"), layout).memory.kv_tokens
        for layout in (Layout(tensor=4), Layout(data=4, expert=4))
    )
    assert own > 3 * copies
    warned = plan(question(latent, pins=Pins(tensor=4, pipeline=1)), Random(1)).warnings
    assert any("latent KV head" in each for each in warned)


def test_optimise_first_where_the_same_card_would_do() -> None:
    one = evaluate(question(rate=None), gpu("H100-80GB"), Layout()).capacity.requests_per_s
    found = plan(question(rate=0.85 * one, pins=Pins(1, 1)), Random(1))
    assert found.choice.replicas == 2
    assert found.advice.verdict is Verdict.OPTIMISE and "FP8" in found.advice.reasons[1]


def test_a_group_that_gains_little_is_called_out() -> None:
    found = plan(question(EIGHT, "L40S", pins=Pins(tensor=8, pipeline=1)), Random(1))
    assert any("communication eats" in each for each in found.warnings)
    assert any("PCIe" in each for each in found.warnings)


def test_few_streams_and_long_requests_are_signals() -> None:
    found = plan(question(EIGHT, "RTX3090-24GB", rate=0.02, inputs=14_000, outputs=200, pins=Pins(1, 1)), Random(1))
    text = " ".join(found.warnings)
    assert "fit at once" in text and "long contexts" in text


def test_a_network_that_is_too_slow_is_warned_of() -> None:
    machines = Machines(per_node=4, network_gbit_s=1)
    found = plan(question(SEVENTY, "A100-80GB", rate=0.05, machines=machines, pins=Pins(4, 2)), Random(1))
    assert any("want 10 at least" in each for each in found.warnings)


def test_no_network_no_group_across_machines() -> None:
    with pytest.raises(PlanError, match="--network"):
        plan(question(SEVENTY, "A100-80GB", machines=Machines(per_node=4), pins=Pins(8, 1)), Random(1))
