"""A plan as a pool of the cluster file, and as the command that starts one replica."""

from __future__ import annotations

import re
import shlex

from kilocard.engines.base import Placement
from kilocard.engines.registry import engine
from kilocard.engines.tuning import tuning
from kilocard.planner.growth import FIRST
from kilocard.planner.plan import Plan
from kilocard.planner.replica import Question
from kilocard.planner.search import Candidate
from kilocard.spec.model import ClusterSpec, GpuSpec, ModelSpec, PoolSpec, ReplicaRange, Scalar

#: where a replica listens in the command that is printed
_HOST, _PORT = "127.0.0.1", 8000


def public_name(model: str) -> str:
    """A name for clients, out of a hub name or a path: `Qwen/Qwen2.5-7B-Instruct` → `qwen2.5-7b-instruct`."""
    last = model.rstrip("/").rsplit("/", 1)[-1]
    return re.sub(r"[^a-z0-9._-]+", "-", last.lower()).strip("-._") or "model"


def pool(question: Question, choice: Candidate, *, model: str, most: int | None = None) -> PoolSpec:
    """`model`: what the engine loads. `most`: replicas that the pool may grow to; None: what the choice has."""
    setting, layout, names = choice.setting, choice.layout, tuning(question.engine)
    wanted: list[tuple[str | None, Scalar]] = [
        (names.utilization, round(choice.memory.resolved.utilization, 4)),
        (names.max_model_len, choice.memory.max_model_len),
        (names.max_num_seqs, choice.memory.resolved.max_num_seqs),
        (names.prefix_caching, choice.memory.resolved.prefix_caching),
        (names.max_num_batched_tokens, setting.max_num_batched_tokens),
        (names.dtype, None if setting.dtype == "auto" else setting.dtype),
        (names.quantization, setting.quantization),
        (names.kv_cache_dtype, None if setting.kv_cache_dtype == "auto" else setting.kv_cache_dtype),
        (names.block_size, setting.block_size),
        (names.enforce_eager, True if setting.enforce_eager else None),
        (names.text_only, True if question.architecture.vision and setting.images == 0 else None),
        (names.data, layout.data if layout.data > 1 else None),
        *((also, True if layout.data > 1 else None) for also in names.data_also),
        (names.expert, True if layout.expert > 1 else None),
        (names.expert_size, layout.expert if layout.expert > 1 else None),
    ]
    args: dict[str, Scalar | tuple[Scalar, ...]] = {
        flag: value for flag, value in wanted if flag is not None and value is not None
    }
    return PoolSpec(
        name=public_name(model),
        engine=question.engine,
        model=model,
        args=args,
        version=setting.version,
        gpus=GpuSpec(choice.gpu.name, layout.tensor, layout.pipeline),
        replicas=ReplicaRange(min(choice.replicas, FIRST), max(choice.replicas, most or 1)),
    )


def engine_command(question: Question, choice: Candidate, *, model: str) -> str:
    """What to type to start one replica, by the same builder that starts the pool's."""
    each = pool(question, choice, model=model)
    launch = engine(each.engine).launch(each, Placement(_HOST, _PORT), (each.name,))
    return shlex.join(launch.argv)


def cluster(plan: Plan, *, model: str) -> ClusterSpec:
    """A whole cluster file: the model under its public name, one pool behind it."""
    most = plan.growth[-1].replicas if plan.growth else None
    each = pool(plan.question, plan.choice, model=model, most=most)
    return ClusterSpec(models={each.name: ModelSpec(each.name, {each.name: 100})}, pools={each.name: each})
