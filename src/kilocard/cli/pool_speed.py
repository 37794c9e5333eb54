"""How fast a pool of the cluster file is: measured, emulated or modelled; and which of these it was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kilocard.cli.model_source import model_source
from kilocard.cli.profile_file import read_profile
from kilocard.core.errors import PlanError, UsageError
from kilocard.engines.flags import arguments
from kilocard.engines.registry import engine as find_engine
from kilocard.engines.tuning import PLANNED, Tuning, tuning
from kilocard.perf.builtin import SMALL_FAST
from kilocard.perf.gpus import gpu as find_gpu
from kilocard.perf.layout import Layout
from kilocard.perf.memory import memory
from kilocard.perf.modelled import profile_of
from kilocard.perf.profile import Profile
from kilocard.perf.setting import EngineSetting
from kilocard.spec.model import PoolSpec, Scalar

Arguments = Mapping[str, Scalar | tuple[Scalar, ...]]


@dataclass(frozen=True, slots=True)
class PoolSpeed:
    profile: Profile
    prefix_cache: bool
    #: where the profile comes from, in words
    told: str


def pool_speed(pool: PoolSpec, given: str | None = None) -> PoolSpeed:
    """`given`: a profile's name or file. Raises UsageError where nothing says how fast the pool is, PlanError where
    the model does not fit the GPU."""
    args = arguments(pool)
    if given is not None:
        profile, told = read_profile(given), f"profile {given}"
    elif pool.profile is not None:
        profile, told = read_profile(pool.profile), f"the pool's profile {pool.profile}"
    elif not find_engine(pool.engine).capabilities.needs_gpu and pool.model is None and pool.gpus is None:
        profile, told = SMALL_FAST, f"profile {SMALL_FAST.name}, an emulated engine's own"
    else:
        return _modelled(pool, args)
    return PoolSpeed(
        _bounded(profile, args), _switch(args, "enable-prefix-caching") is not False, f"{told} ({profile.provenance})"
    )


def _bounded(profile: Profile, args: Arguments) -> Profile:
    """The pool's own limits, where its args have them under vLLM's names, as the emulated engine has."""
    names = {"max-num-seqs": "max_num_seqs", "kv-tokens": "kv_tokens", "max-model-len": "max_model_len",
             "max-num-batched-tokens": "max_num_batched_tokens"}  # fmt: skip
    found: dict[str, Any] = {field: whole for name, field in names.items() if (whole := _whole(args, name)) is not None}
    return replace(profile, **found) if found else profile


def _modelled(pool: PoolSpec, args: Arguments) -> PoolSpeed:
    gpus = pool.gpus
    if pool.engine not in PLANNED or pool.model is None or gpus is None or gpus.type is None:
        raise UsageError(
            f"pool {pool.name}: nothing says how fast it is. Give --profile {pool.name}=FILE (kilocard calibrate makes "
            f"one), or say `model` and `gpus: {{type: …}}` of a pool with engine {', '.join(PLANNED)}"
        )
    names = tuning(pool.engine)
    try:
        architecture, gpu = model_source(pool.model).architecture, find_gpu(gpus.type)
    except UsageError as error:
        raise UsageError(f"pool {pool.name}: {error.message}; or give --profile {pool.name}=FILE") from error
    layout = Layout(gpus.tensor, gpus.pipeline)
    setting = _setting(pool, names, args)
    try:
        room = memory(architecture, gpu, layout, setting)
    except PlanError as error:
        raise PlanError(f"pool {pool.name}: {error.message}", code=error.code) from error
    profile = profile_of(architecture, gpu, layout, room, setting.version, engine=pool.engine)
    return PoolSpeed(profile, room.resolved.prefix_caching, f"modelled: {profile.name}, {profile.note}")


def _setting(pool: PoolSpec, names: Tuning, args: Arguments) -> EngineSetting:
    return EngineSetting(
        budget=names.budget,
        version=pool.version,
        utilization=_number(args, names.utilization),
        max_model_len=_whole(args, names.max_model_len),
        max_num_seqs=_whole(args, names.max_num_seqs),
        max_num_batched_tokens=_whole(args, names.max_num_batched_tokens),
        dtype=_word(args, names.dtype) or "auto",
        quantization=_word(args, names.quantization),
        kv_cache_dtype=_word(args, names.kv_cache_dtype) or "auto",
        enforce_eager=names.enforce_eager is not None and args.get(names.enforce_eager) is True,
        prefix_caching=_switch(args, names.prefix_caching),
        images=0 if names.text_only is not None and _switch(args, names.text_only) else 1,
    )


def _switch(args: Arguments, name: str | None) -> bool | None:
    """Whether it is on; None: nothing is said."""
    if name is None:
        return None
    if args.get(name) is False or args.get(f"no-{name}") is True:
        return False
    return True if name in args else None


def _number(args: Arguments, name: str | None) -> float | None:
    """What is no number is the engine's to complain about."""
    value = None if name is None else args.get(name.replace("_", "-"))
    try:
        return None if value is None or isinstance(value, tuple | bool) else float(value)
    except ValueError:
        return None


def _whole(args: Arguments, name: str | None) -> int | None:
    found = _number(args, name)
    return None if found is None else int(found)


def _word(args: Arguments, name: str | None) -> str | None:
    value = None if name is None else args.get(name.replace("_", "-"))
    return value if isinstance(value, str) else None
