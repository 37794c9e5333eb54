"""What a fit begins from: the engine's room, and the roofline where model and GPU are known."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kilocard.bench.document import Results
from kilocard.cli.model_source import model_source
from kilocard.core.errors import UsageError
from kilocard.perf.gpus import gpu as find_gpu
from kilocard.perf.layout import Layout
from kilocard.perf.memory import memory
from kilocard.perf.modelled import FALLBACK_ENGINE, profile_of
from kilocard.perf.profile import Profile
from kilocard.perf.setting import EngineSetting

#: vLLM's max-num-batched-tokens for its server on most GPUs; docs/calibrate.md says how to see the real one
BATCHED_TOKENS = 2048
MAX_MODEL_LEN = 8192


@dataclass(frozen=True, slots=True)
class Told:
    """The options of the command line; None: not given."""

    name: str | None = None
    model: str | None = None
    gpu: str | None = None
    tensor: int = 1
    pipeline: int = 1
    engine_version: str | None = None
    kv_tokens: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    block_size: int | None = None
    max_model_len: int | None = None


def modelled(told: Told, *, engine: str | None = None, engine_version: str | None = None) -> Profile:
    """The roofline of a model on a GPU. Raises UsageError for unknown names, PlanError when it does not fit."""
    if told.model is None or told.gpu is None:
        raise UsageError("a model of the speed needs --model and --gpu; else give the folder that the bench wrote")
    architecture, gpu = model_source(told.model).architecture, find_gpu(told.gpu)
    layout = Layout(told.tensor, told.pipeline)
    setting = EngineSetting(
        version=told.engine_version or engine_version,
        max_num_seqs=told.max_num_seqs,
        max_num_batched_tokens=told.max_num_batched_tokens,
        block_size=told.block_size,
        max_model_len=told.max_model_len,
    )
    room = memory(architecture, gpu, layout, setting)
    found = profile_of(architecture, gpu, layout, room, setting.version, engine=engine or FALLBACK_ENGINE)
    return replace(found, name=told.name or found.name, kv_tokens=told.kv_tokens or found.kv_tokens)


def base(results: Results, told: Told) -> Profile:
    """Room: what was told, what the bench saw, what the memory account says, in this order."""
    target = results.target
    roofline = modelled(told, engine=target.engine, engine_version=target.engine_version) if told.model else None
    kv_tokens = told.kv_tokens or target.kv_tokens or (roofline and roofline.kv_tokens)
    if not kv_tokens:
        raise UsageError('--kv-tokens: the run does not say; it is "GPU KV cache size: N tokens" in the engine\'s log')
    slots = told.max_num_seqs or target.max_num_seqs or slots_seen(results) or (roofline and roofline.max_num_seqs)
    if not slots:
        raise UsageError("--max-num-seqs: the run does not say, and no load of it filled the engine's slots")
    profile = roofline or Profile(
        name="measured",
        step_fixed_s=1e-6,
        prefill_token_s=0.0,
        decode_seq_s=0.0,
        kv_token_s=0.0,
        kv_tokens=kv_tokens,
        max_num_seqs=slots,
        max_num_batched_tokens=told.max_num_batched_tokens or BATCHED_TOKENS,
        max_model_len=told.max_model_len or MAX_MODEL_LEN,
    )
    return replace(
        profile,
        name=told.name or target.model.rpartition("/")[2] or profile.name,
        kv_tokens=kv_tokens,
        max_num_seqs=slots,
        block_size=told.block_size or target.block_size or profile.block_size,
        engine=target.engine or profile.engine,
        engine_version=told.engine_version or target.engine_version or "",
        gpu=told.gpu or "",
        date=results.about.started_at[:10],
        note=f"Fitted by kilocard calibrate to a run against {target.model or 'a model'}.",
    )


def slots_seen(results: Results) -> int | None:
    """The most that ran at once, where others waited meanwhile."""
    seen = [point.engine for point in results.points]
    return max((int(each.running_max) for each in seen if each.running_max and each.waiting_max), default=None)
