"""What to try on the cards that are there before more are bought."""

from __future__ import annotations

from dataclasses import replace

from kilocard.core.errors import PlanError
from kilocard.planner.advice import Optimisation
from kilocard.planner.capacity import Limit
from kilocard.planner.replica import Question
from kilocard.planner.search import Candidate, evaluate

#: less than this is not worth a change
_WORTH = 1.1


def optimisations(question: Question, choice: Candidate) -> tuple[Optimisation, ...]:
    """Each is the same GPUs with one thing changed, best first. With a measured profile none: it speaks of itself."""
    if question.measured is not None:
        return ()
    now = choice.capacity.expected.output_tokens_per_s
    found = []
    for what, other in _changes(question, choice):
        try:
            changed = evaluate(other, choice.gpu, choice.layout)
        except PlanError:
            continue  # it does not fit or misses the objective: no advice then
        then = changed.capacity.expected.output_tokens_per_s
        if then >= _WORTH * now:
            found.append(Optimisation(what, then))
    return tuple(sorted(found, key=lambda each: -each.output_tokens_per_s))


def _changes(question: Question, choice: Candidate) -> list[tuple[str, Question]]:
    setting = question.setting
    found = []
    if question.architecture.quantization is None and setting.quantization is None:
        if "fp8" in choice.gpu.tflops:
            found.append(("FP8 weights (--quantization fp8)", replace(setting, quantization="fp8")))
        else:
            found.append(("4-bit weights (an AWQ or GPTQ checkpoint)", replace(setting, quantization="awq")))
    if choice.capacity.limit is Limit.MEMORY and setting.kv_cache_dtype == "auto" and "fp8" in choice.gpu.tflops:
        found.append(("an FP8 KV cache (--kv-cache-dtype fp8)", replace(setting, kv_cache_dtype="fp8")))
    return [(what, replace(question, setting=each)) for what, each in found]
