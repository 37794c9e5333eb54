"""What an engine is started with: the part of vLLM's options that the model knows."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from kilocard.core.errors import EngineError
from kilocard.perf.profile import Profile
from kilocard.sim.waiting import Policy


class Limits(TypedDict):
    """Where a limit is None or not given, the profile's holds."""

    max_num_seqs: NotRequired[int | None]
    kv_tokens: NotRequired[int | None]
    max_num_batched_tokens: NotRequired[int | None]
    #: prompts added with `blocks` share their KV
    prefix_cache: NotRequired[bool]
    policy: NotRequired[Policy]
    #: share of the KV blocks that an admission leaves free while others run (vLLM: 0)
    watermark: NotRequired[float]
    #: tokens of one prompt in one step at most, while there are other requests (0: no limit, vLLM's default)
    long_prefill_token_threshold: NotRequired[int]
    #: as vLLM does by default: a step is scheduled when the one before it begins. So who comes in during a step waits
    #: for the next but one, and slots and blocks are free one step later. Only on the engine's own clock (advance)
    async_scheduling: NotRequired[bool]


def check(limits: Limits, profile: Profile) -> None:
    """Raises EngineError for what no engine could be started with."""
    for name in ("max_num_seqs", "max_num_batched_tokens", "long_prefill_token_threshold"):
        value = limits.get(name)
        if isinstance(value, int) and value < 0:
            raise EngineError(f"{name} is {value}: it must be 1 or more (0: the default)")
    kv_tokens = limits.get("kv_tokens") or profile.kv_tokens
    if kv_tokens < 2 * profile.block_size:
        raise EngineError(f"{kv_tokens} KV tokens are less than two blocks of {profile.block_size}")
    watermark = limits.get("watermark", 0.0)
    if not 0 <= watermark < 1:
        raise EngineError(f"watermark {watermark} is not a share of the KV blocks, from 0 to less than 1")
