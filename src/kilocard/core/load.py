"""What a replica's metrics page says of it at one moment."""

from __future__ import annotations

from typing import NamedTuple


class LoadSample(NamedTuple):
    """One reading of one replica. None means unknown: a missing gauge is never taken for 0.

    `running` and `waiting` are requests, summed over data-parallel engines; `kv_usage` is a share 0–1 (the
    fullest engine's); the `_total` fields are counters since the engine's start, in requests or tokens.
    """

    at: float
    running: float | None = None
    waiting: float | None = None
    kv_usage: float | None = None
    preemptions_total: float | None = None
    prompt_tokens_total: float | None = None
    generation_tokens_total: float | None = None
    prefix_queries_total: float | None = None
    prefix_hits_total: float | None = None
    #: KV capacity in tokens (block size × blocks), where the engine states it
    kv_tokens: float | None = None
