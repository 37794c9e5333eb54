"""The page that `kilocard plan` prints: what to run, what to expect, why, what else there is."""

from __future__ import annotations

from collections.abc import Iterable

import yaml
from rich.table import Table
from rich.text import Text

from kilocard.cli.output import results
from kilocard.perf.memory import Memory
from kilocard.planner.capacity import Capacity
from kilocard.planner.plan import Plan
from kilocard.planner.pool import cluster, engine_command
from kilocard.planner.replica import Speed
from kilocard.planner.search import Candidate
from kilocard.spec.dump import dump

_REFUSALS = 8
#: a mean above this is that of a queue without end: at the limit, or beyond it
_ENDLESS_S = 600.0
_COLUMNS = ("GPU", "layout", "replicas", "GPUs", "$/h", "$/M tokens", "TTFT", "TPOT", "a replica's limit", "speed")


def show(plan: Plan, *, model: str) -> None:
    choice, question = plan.choice, plan.question
    results.print(Text.assemble((plan.advice.verdict.value, "bold"), f": {what(choice)}"))
    lines(plan.advice.reasons)
    for warning in plan.warnings:
        results.print(Text.assemble(("  !", "yellow"), f" {warning}"), soft_wrap=True)

    heading("What to run")
    results.print(engine_command(question, choice, model=model), soft_wrap=True)
    results.print()
    results.print(yaml.safe_dump(dump(cluster(plan, model=model)), sort_keys=False, allow_unicode=True).rstrip())

    if plan.placement is not None:
        heading("Which GPUs of a machine")
        lines(_placement(plan))
    heading("What to expect")
    _expect(plan)
    heading("Memory of one GPU")
    lines(_memory(choice.memory))
    heading("Why these arguments")
    lines(f"{each.flag} {each.value}: {each.why}" for each in plan.parameters)
    if plan.stages is not None:
        lines(_stages(plan))

    heading("What else there is")
    _alternatives(plan)
    if plan.split is not None:
        results.print(f"prefill and decode apart: {'worth a trial' if plan.split.pays else 'not worth it here'}")
        lines(plan.split.reasons)
    if len(plan.growth) > 1:
        heading("How it grows")
        lines(
            f"{step.replicas} replica{'s' * (step.replicas > 1)}, up to {step.up_to_rate_per_s:.3g} requests/s: "
            f"{step.when}"
            for step in plan.growth
        )
    heading("What would change the answer")
    lines(plan.changes)
    heading("Where the numbers come from")
    lines(_provenance(plan))
    if plan.refusals:
        heading("What can't be")
        reasons = list(dict.fromkeys(f"{each.gpu.name} {each.layout}: {_brief(each.reason)}" for each in plan.refusals))
        lines(reasons[:_REFUSALS])
        if len(reasons) > _REFUSALS:
            lines([f"and {len(reasons) - _REFUSALS} more; --json has them all"])


def _placement(plan: Plan) -> list[str]:
    chosen = plan.placement
    assert chosen is not None
    found = []
    for group, link in zip(chosen.groups, chosen.links, strict=True):
        joined = "" if link is None else f" ({link.name})"
        found.append(f"a replica on {{{','.join(map(str, group))}}}{joined}")
    if chosen.left_over:
        alone = ", ".join(map(str, chosen.left_over))
        found.append(f"GPU {alone} left over: a replica of its own where the model fits on one")
    found += [f"TP{each.tensor} is refused: {each.refusal}" for each in plan.placements if each.refusal]
    found += [
        f"TP{each.tensor}: {each.warnings[0]}" for each in plan.placements if each.warnings and each is not chosen
    ]
    return found


def _brief(reason: str) -> str:
    """Without the remedies: the choice above is one."""
    return reason.partition(" What helps:")[0].partition(" The longest that fits")[0]


def what(choice: Candidate) -> str:
    """`10 × TP1 on A100-80GB (10 GPUs, 15.00 $/h)`."""
    return (
        f"{choice.replicas} replica{'s' * (choice.replicas > 1)} of {choice.layout} on {choice.gpu.name}, "
        f"{choice.gpus} GPU{'s' * (choice.gpus > 1)}, about {choice.cost_per_hour:.2f} $/h"
    )


def heading(text: str) -> None:
    results.print(f"\n{text}", style="bold")


def lines(texts: Iterable[str]) -> None:
    for text in texts:
        results.print(f"  {text}", soft_wrap=True)


def _expect(plan: Plan) -> None:
    choice, tried, each = plan.choice, plan.trial, plan.choice.each
    objective = plan.question.demand.objective
    table = Table(box=None, pad_edge=False)
    virtual = ("mean (virtual time)", "p95 (virtual time)") if tried is not None else ()
    for name in ("", "mean (closed form)", *virtual, "objective"):
        table.add_column(name, justify="left" if not name else "right")
    ttft, tpot = (None, None) if tried is None else (tried.ttft_s, tried.tpot_s)
    for name, mean, tail, limit, asked in (
        ("TTFT", each.ttft_s, ttft, objective.ttft_s, objective.asked_ttft),
        ("TPOT", each.tpot_s, tpot, objective.tpot_s, objective.asked_tpot),
    ):
        simulated = () if tried is None else ("", "") if tail is None else (_ms(tail.mean), _ms(tail.p95))
        table.add_row(name, _ms(mean), *simulated, _objective(limit, asked))
    results.print(table)
    demand = plan.question.demand
    lines(
        [
            f"{choice.output_tokens_per_s:,.0f} output tokens/s in all, {each.output_tokens_per_s:,.0f} a replica, at "
            f"{demand.input_tokens:,.0f} tokens in and {demand.output_tokens:,.0f} out; {each.running:.0f} streams a "
            f"replica run at once",
            _limit(choice.capacity),
        ]
    )
    if tried is not None:
        some = "" if tried.replicas == tried.of_replicas else f", {tried.replicas} of the {tried.of_replicas} replicas"
        lines(
            [
                f"virtual time: {tried.seconds:,.0f} s of the peak, {tried.requests} requests by chance (Poisson)"
                f"{some}, through the gateway's queue_depth"
            ]
        )
        if not plan.trial_agrees:
            lines(
                ["the closed form and virtual time disagree by more than 15 % on TPOT: trust virtual time, and measure"]
            )
        if plan.before_trial != choice.replicas:
            lines(
                [f"the closed form alone would take {plan.before_trial}; p95 on virtual time wants {choice.replicas}"]
            )


def _limit(limit: Capacity) -> str:
    return (
        f"one replica's limit: {limit.expected.output_tokens_per_s:,.0f} output tokens/s with {limit.concurrency} "
        f"streams; what stops it: {limit.limit.value}"
    )


def _memory(memory: Memory) -> list[str]:
    low, high = memory.rule_of_thumb_gib
    gpus = memory.layout.gpus
    whole = f"all {gpus} GPUs: weights {memory.weights_gib_total:.1f} GiB, KV cache {memory.kv_gib_total:.1f} GiB"
    return [
        memory.account(),
        *([whole] if gpus > 1 else []),
        f"KV cache: {memory.kv_tokens:,} tokens ({memory.kv_blocks:,} blocks of {memory.block_size}), room for "
        f"{memory.max_concurrency:.1f} requests of {memory.max_model_len:,} tokens; the longest that fits is "
        f"{memory.largest_max_model_len:,}",
        f"rule of thumb, parameters × 2 bytes × 1.2 to 1.4: {low:.0f} to {high:.0f} GiB over all GPUs",
        *memory.warnings,
    ]


def _stages(plan: Plan) -> list[str]:
    stages = plan.stages
    assert stages is not None
    layers = "/".join(map(str, stages.layers))
    found = [
        f"pipeline stages of {layers} layers: balance {stages.balance:.0%} (head counted with the last); check "
        "with nvidia-smi that every card's memory is about the same"
    ]
    held = [stage.weights.gib_per_gpu for stage in plan.choice.memory.stages]
    found.append(f"weights of a card by stage: {' / '.join(f'{gib:.1f}' for gib in held)} GiB")
    better = plan.better_stages
    if better is not None:
        found.append(f"VLLM_PP_LAYER_PARTITION={better.setting()} evens the work: balance {better.balance:.0%}")
    return found


def _alternatives(plan: Plan) -> None:
    if not plan.alternatives:
        lines(["nothing else works"])
        return
    table = Table(box=None, pad_edge=False)
    for name in (
        "GPU",
        "layout",
        "replicas",
        "GPUs",
        "$/h",
        "$/M tokens",
        "TTFT",
        "TPOT",
        "limit of a replica",
        "speed",
    ):
        table.add_column(name, justify="left" if name in {"GPU", "layout"} else "right")
    for each in (plan.choice, *plan.alternatives):
        table.add_row(
            each.gpu.name,
            str(each.layout),
            str(each.replicas) + ("" if each.enough else " (too few)"),
            str(each.gpus),
            f"{each.cost_per_hour:.2f}",
            f"{each.cost_per_million:.2f}",
            _ms(each.each.ttft_s),
            _ms(each.each.tpot_s),
            f"{each.capacity.expected.output_tokens_per_s:,.0f} tok/s",
            plan.question.speed if each is plan.choice else Speed.MODELLED,
        )
    results.print(table)


def written_note(plan: Plan) -> str:
    """One line for the cluster file: how far the number of replicas is to be trusted."""
    how = plan.question.speed
    said = plan.doubt.replicas_text(plan.choice.replicas)
    return f"Planned with speed {how}" + (f": {said}." if said else f", off by {plan.doubt.off}.")


def _provenance(plan: Plan) -> list[str]:
    choice = plan.choice
    profile = choice.profile
    return [
        f"speed: {plan.question.speed} (profile {profile.name}), off by {plan.doubt.off}"
        + (f". {profile.note}" if profile.note else ""),
        "memory: counted from the model's config; what nobody said: "
        + (", ".join(f"{name} {value}" for name, value in choice.memory.assumed) or "nothing"),
        f"prices: on-demand, of lists, {choice.gpu.price_per_hour:.2f} $/h for one {choice.gpu.name}: put in your own",
        *plan.question.architecture.assumptions,
    ]


def _ms(seconds: float) -> str:
    if seconds > _ENDLESS_S:
        return "grows"
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def _objective(seconds: float, asked: bool) -> str:
    return _ms(seconds) + ("" if asked else " (usual)")
