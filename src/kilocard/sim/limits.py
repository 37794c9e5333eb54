"""What an engine is started with: the part of vLLM's options that the model knows."""

from __future__ import annotations

from typing import NotRequired, TypedDict

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
