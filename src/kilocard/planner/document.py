"""A plan as plain values: the document that `kilocard plan --json` prints (docs/plan.md describes it)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kilocard.perf.memory import Memory
from kilocard.perf.operating_point import Expected
from kilocard.planner.fleet import is_full
from kilocard.planner.placement import Placement
from kilocard.planner.plan import Plan
from kilocard.planner.pool import engine_command
from kilocard.planner.replica import Question
from kilocard.planner.search import Candidate, Refusal
from kilocard.planner.trial import Tail, Trial


def document(plan: Plan, *, model: str) -> dict[str, Any]:
    """Units are in the names; numbers that are not known are null."""
    choice, question = plan.choice, plan.question
    return {
        "model": _model(question, model),
        "gpu": _gpu(choice),
        "demand": _demand(plan),
        "memory": memory_section(choice.memory),
        "choice": candidate(choice, question)
        | _while_it_lasts(plan)
        | {
            "engine": question.engine,
            "engine_command": engine_command(question, choice, model=model),
            "simulated": _trial(plan.trial),
            "simulated_agrees": plan.trial_agrees,
            "replicas_before_simulation": plan.before_trial,
            "stages": None if plan.stages is None else {"layers": plan.stages.layers, "balance": plan.stages.balance},
        },
        "alternatives": [candidate(each, question) for each in plan.alternatives],
        "advice": {
            "verdict": plan.advice.verdict.value,
            "reasons": plan.advice.reasons,
            "ratio": plan.advice.ratio,
            "growth": [
                {"replicas": step.replicas, "up_to_rate_per_s": step.up_to_rate_per_s, "when": step.when}
                for step in plan.growth
            ],
            "parameters": [{"flag": each.flag, "value": each.value, "why": each.why} for each in plan.parameters],
            "warnings": plan.warnings,
            "changes": plan.changes,
            "prefill_decode_split": None
            if plan.split is None
            else {
                "pays": plan.split.pays,
                "reasons": plan.split.reasons,
                "prefill_replicas": plan.split.prefill_replicas,
                "decode_replicas": plan.split.decode_replicas,
                "transfer_gb_s": plan.split.transfer_gb_s,
            },
        },
        "placement": [_placement(each, chosen=each is plan.placement) for each in plan.placements],
        "refused": refused(plan.refusals),
        "provenance": _provenance(plan),
    }


def impossible(question: Question, refusals: Sequence[Refusal], *, model: str) -> dict[str, Any]:
    """The document of a plan that there is none of: why each layout was refused."""
    return {
        "model": _model(question, model),
        "gpu": None,
        "memory": None,
        "choice": None,
        "alternatives": [],
        "advice": {"verdict": "impossible", "reasons": list(dict.fromkeys(each.reason for each in refusals))},
        "refused": refused(refusals),
        "provenance": {"speed": None},
    }


def refused(refusals: Sequence[Refusal]) -> list[dict[str, Any]]:
    return [
        {
            "gpu": each.gpu.name,
            "tensor": each.layout.tensor,
            "pipeline": each.layout.pipeline,
            "expert": each.layout.expert,
            "data": each.layout.data,
            "reason": each.reason,
        }
        for each in refusals
    ]


def candidate(each: Candidate, question: Question) -> dict[str, Any]:
    layout = each.layout
    return {
        "gpu": each.gpu.name,
        "tensor": layout.tensor,
        "pipeline": layout.pipeline,
        "expert": layout.expert,
        "data": layout.data,
        "link": each.link.name if layout.gpus > 1 else None,
        "replicas": each.replicas,
        "gpus": each.gpus,
        "enough": each.enough,
        "expected": expected(each.each, each.replicas, question),
        "capacity": {
            "concurrency": each.capacity.concurrency,
            "output_tokens_per_s": each.capacity.expected.output_tokens_per_s,
            "requests_per_s": each.capacity.requests_per_s,
            "limit": each.capacity.limit.value,
        },
        "cost_usd_per_hour": each.cost_per_hour,
        "cost_usd_per_million_output_tokens": each.cost_per_million,
    }


def expected(each: Expected, replicas: int, question: Question) -> dict[str, Any]:
    """Means of the closed form. Throughput is the whole cluster's; `concurrency` one replica's."""
    output = question.demand.output_tokens
    return {
        "output_tokens_per_s": each.output_tokens_per_s * replicas,
        "output_tokens_per_s_per_replica": each.output_tokens_per_s,
        "requests_per_s": each.requests_per_s * replicas,
        "ttft_s": each.ttft_s,
        "tpot_s": each.tpot_s,
        "e2e_s": each.ttft_s + each.tpot_s * max(0.0, output - 1),
        "concurrency": each.concurrency,
        "running": each.running,
        "kv_usage": each.kv_share,
        "saturated": each.saturated,
    }


def _while_it_lasts(plan: Plan) -> dict[str, Any]:
    """Full replicas reach their steady state in no peak: `expected` then has virtual time's TTFT."""
    choice, tried, rate = plan.choice, plan.trial, plan.question.demand.rate_per_s
    if tried is None or rate is None or not is_full(rate, choice.capacity.requests_per_s, choice.replicas):
        return {}
    return {"expected": expected(replace(choice.each, ttft_s=tried.ttft_s.mean), choice.replicas, plan.question)}


def memory_section(memory: Memory) -> dict[str, Any]:
    """GiB of one GPU unless the name says otherwise; kv_tokens and max_concurrency are the whole replica's."""
    resolved = memory.resolved
    return {
        "gpu_gib": memory.total_gib,
        "utilization": resolved.utilization,
        "weights_gib_per_gpu": memory.weights_gib_per_gpu,
        "activation_gib": memory.activation_gib,
        "non_torch_gib": memory.non_torch_gib,
        "cuda_graph_gib": memory.cuda_graph_gib,
        "cuda_graphs_in_budget": memory.graphs_in_budget,
        "kv_gib_per_gpu": memory.kv_gib_per_gpu,
        "kv_tokens": memory.kv_tokens,
        "kv_blocks": memory.kv_blocks,
        "block_size": memory.block_size,
        "kv_bytes_per_token": memory.kv_bytes_per_token,
        "kv_bytes_fixed": memory.kv_bytes_fixed,
        "max_concurrency": memory.max_concurrency,
        "max_model_len": memory.max_model_len,
        "largest_max_model_len": memory.largest_max_model_len,
        "max_num_seqs": resolved.max_num_seqs,
        "max_num_batched_tokens": resolved.max_num_batched_tokens,
        "kv_cache_dtype": resolved.kv_dtype,
        "hybrid_kv_manager": resolved.hybrid_manager,
        "weights_gib_total": memory.weights_gib_total,
        "kv_gib_total": memory.kv_gib_total,
        "stages": [
            {
                "weights_gib_per_gpu": stage.weights.gib_per_gpu,
                "kv_gib_per_gpu": stage.kv_gib,
                "kv_blocks": stage.blocks,
            }
            for stage in memory.stages
        ],
        "rule_of_thumb_gib": memory.rule_of_thumb_gib,
        "account": memory.account(),
        "assumed": {name: value for name, value in memory.assumed if name != "model"},
        "warnings": memory.warnings,
    }


def _model(question: Question, model: str) -> dict[str, Any]:
    shape = question.architecture
    return {
        "name": shape.name or model,
        "source": model,
        "family": shape.family,
        "parameters": shape.parameters,
        "active_parameters": shape.active_parameters,
        "layers": shape.layers,
        "heads": shape.heads,
        "kv_heads": shape.kv_heads,
        "assumptions": shape.assumptions,
    }


def _gpu(choice: Candidate) -> dict[str, Any]:
    return {
        "name": choice.gpu.name,
        "memory_gib": choice.memory.total_gib,
        "bandwidth_gb_s": choice.gpu.bandwidth_gb_s,
        "nvlink_gb_s": choice.gpu.nvlink_gb_s,
        "price_usd_per_hour": choice.gpu.price_per_hour,
    }


def _demand(plan: Plan) -> dict[str, Any]:
    demand = plan.question.demand
    objective = demand.objective
    return {
        "rate_per_s": demand.rate_per_s,
        "concurrency": demand.concurrency,
        "input_tokens": demand.input_tokens,
        "output_tokens": demand.output_tokens,
        "output_tokens_per_s": demand.output_tokens_per_s,
        "slo_ttft_s": objective.ttft_s,
        "slo_tpot_s": objective.tpot_s,
        "slo_asked": {"ttft": objective.asked_ttft, "tpot": objective.asked_tpot},
        "headroom": plan.question.sizing.headroom,
        "scaling_efficiency": plan.question.sizing.efficiency,
    }


def _placement(each: Placement, *, chosen: bool) -> dict[str, Any]:
    return {
        "tensor": each.tensor,
        "chosen": chosen,
        "groups": [
            {"gpus": group, "link": None if link is None else link.name}
            for group, link in zip(each.groups, each.links, strict=True)
        ],
        "left_over": each.left_over,
        "refused": each.refusal or None,
        "warnings": each.warnings,
    }


def _trial(tried: Trial | None) -> dict[str, Any] | None:
    if tried is None:
        return None
    return {
        "ttft_s": _tail(tried.ttft_s),
        "tpot_s": _tail(tried.tpot_s),
        "e2e_s": _tail(tried.e2e_s),
        "output_tokens_per_s": tried.output_tokens_per_s * tried.of_replicas / tried.replicas,
        "seconds": tried.seconds,
        "requests": tried.requests,
        "replicas_simulated": tried.replicas,
        "concurrency": tried.concurrency,
        "preemptions": tried.preemptions,
        "turned_away": tried.turned_away,
    }


def _tail(tail: Tail | None) -> dict[str, float] | None:
    return None if tail is None else {"mean": tail.mean, "p50": tail.p50, "p95": tail.p95, "p99": tail.p99}


def _provenance(plan: Plan) -> dict[str, Any]:
    profile = plan.choice.profile
    return {
        "speed": profile.provenance,
        "speed_error": plan.doubt.median.error,
        "speed_error_p90": plan.doubt.p90.error,
        "speed_error_covered": plan.doubt.covered,
        "replicas_within": {"median": plan.doubt.median.replicas, "p90": plan.doubt.p90.replicas},
        "profile": profile.to_mapping(),
        "note": profile.note,
    }
