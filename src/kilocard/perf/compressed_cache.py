"""DeepSeek V4's caches: a window of latent vectors, compressed vectors, the indexer's, and the compressors' states.

Sizes are vLLM's 8-bit layout (models/deepseek_v4, v1/attention/backends/mla/sparse_swa.py): 584 bytes a vector (448
without position, 64 × 2 rotated, 8 scales), pages rounded up to 576 bytes. In windows and states vLLM sees window
layers, so a request holds them for the tokens in flight too, which is most of what a short request needs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from kilocard.perf.layer_cache import CacheGroup, LayerCache
from kilocard.perf.layers import Compressed

VECTOR_BYTES = 584
PAGE_STEP = 576
WINDOW_BLOCK = 64
#: tokens in a block of a compressor's state, by ratio
STATE_BLOCK = {4: 4, 128: 8}


def _page(size: float) -> int:
    return math.ceil(size / PAGE_STEP) * PAGE_STEP


def compressed_caches(mixers: Iterable[Compressed], block_size: int) -> list[LayerCache]:
    """`block_size` in tokens before compression (256)."""
    caches: list[LayerCache] = []
    for mixer in mixers:
        caches.append(LayerCache("window", _page(WINDOW_BLOCK * VECTOR_BYTES), WINDOW_BLOCK, mixer.window))
        if not mixer.ratio:
            continue
        overlap = 2 if mixer.ratio == 4 else 1
        vectors = block_size // mixer.ratio
        state_block = STATE_BLOCK.get(mixer.ratio, 8)
        caches.append(LayerCache("full", _page(vectors * VECTOR_BYTES), block_size, None))
        # the state: keys and scores of the tokens that are not compressed yet, 32 bits an element
        state = state_block * 2 * overlap * 4
        caches.append(LayerCache("window", _page(state * mixer.head_dim), state_block, overlap * mixer.ratio))
        if mixer.index_dim:
            row = mixer.index_dim + 4 * mixer.index_dim // 128
            caches.append(LayerCache("full", _page(vectors * row), block_size, None))
            caches.append(LayerCache("window", _page(state * mixer.index_dim), state_block, overlap * mixer.ratio))
    return caches


def packed_groups(caches: Sequence[LayerCache]) -> tuple[CacheGroup, ...]:
    """One group for all full caches; each sort of window is cut so that its groups are no wider than that one."""
    full = [cache for cache in caches if cache.kind == "full"]
    widest = sum(cache.page_bytes for cache in full) or max(cache.page_bytes for cache in caches)
    groups = [CacheGroup(full[0], len(full), widest)] if full else []
    buckets: dict[tuple[int | None, int], list[LayerCache]] = {}
    for cache in caches:
        if cache.kind != "full":
            buckets.setdefault((cache.window, cache.block_size), []).append(cache)
    for members in buckets.values():
        total = sum(cache.page_bytes for cache in members)
        parts = math.ceil(total / widest)
        groups += [CacheGroup(members[0], math.ceil(len(members) / parts), widest)] * parts
    return tuple(groups)
