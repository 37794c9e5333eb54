"""The KV cache as vLLM lays it out: pages of layers, groups of layers, blocks, and what a request holds of them.

A block belongs to one group and holds `block_size` tokens of all layers of that group. Layers of one kind make one
group. In a hybrid model every kind is cut into groups of the same number of layers (the last padded), every page is
made the same size, and a request takes blocks from each group: all of its length for full attention, the window and
what is in flight for window layers, one or two for a recurrent state. After vLLM's v1/core/kv_cache_utils.py and
v1/kv_cache_interface.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kilocard.perf import engine_defaults as defaults
from kilocard.perf.compressed_cache import compressed_caches, packed_groups
from kilocard.perf.layer_cache import CacheGroup, LayerCache
from kilocard.perf.layers import Attention, Block, Compressed, Latent, Linear, Mamba, Mixer
from kilocard.perf.setting import Resolved

#: bytes of a token of DeepSeek's sparse attention with an 8-bit cache: 512 + 4 scales of 32 bits + 64 in 16 bits
SPARSE_LATENT_8BIT = 656
#: kernels of MLA beside linear attention want blocks in steps of this
LATENT_HYBRID_STEP = 128


@dataclass(frozen=True, slots=True)
class CacheLayout:
    """Groups of one GPU of a stage, and the bytes of a block: the widest group's."""

    groups: tuple[CacheGroup, ...]
    block_bytes: int
    #: window layers hold blocks for their whole context (no hybrid manager, or one that can't)
    promoted: bool

    @property
    def block_size(self) -> int:
        """Tokens in a block of the finest group."""
        sizes = [group.cache.block_size for group in self.groups if group.cache.kind != "state"]
        return min(sizes, default=1)

    def blocks(self, kv_bytes: float) -> int:
        return int(kv_bytes // self.block_bytes) if self.block_bytes else 0

    def blocks_per_request(self, length: int, in_flight: int) -> int:
        """That a request of `length` tokens holds, when a step may still work on `in_flight` tokens of it."""
        return sum(group.cache.blocks_held(length, in_flight) for group in self.groups)

    def longest(self, blocks: int, in_flight: int, limit: int) -> int:
        """The longest request that fits into so many blocks, at most `limit` tokens; 0 when none does."""
        low, high = 0, limit
        while low < high:
            middle = (low + high + 1) // 2
            if self.blocks_per_request(middle, in_flight) <= blocks:
                low = middle
            else:
                high = middle - 1
        return low


def cache_layout(blocks: Sequence[Block], resolved: Resolved, tensor: int, stage: range | None = None) -> CacheLayout:
    """Of the layers of one stage (indices of `blocks`, None = all), on one GPU of a tensor-parallel group.

    Groups are made of the whole model's layers; a stage holds of each what falls to it, and blocks are as wide as the
    group that has most there.
    """
    stage = stage if stage is not None else range(len(blocks))
    mixers = [block.mixer for block in blocks if block.mixer is not None]
    if any(isinstance(mixer, Compressed) for mixer in mixers):
        own = [m for m in (blocks[i].mixer for i in stage) if isinstance(m, Compressed)]
        packed = packed_groups(compressed_caches(own, resolved.block_size))
        return CacheLayout(packed, max(group.bytes for group in packed), promoted=False)
    owned = [(i, cache) for i, b in enumerate(blocks) if b.mixer for cache in layer_caches(b.mixer, resolved, tensor)]
    if not owned:
        return CacheLayout((), 0, promoted=False)
    owners = [i for i, _ in owned]
    caches = _aligned([cache for _, cache in owned], mixers, resolved, tensor)
    windows = any(cache.kind in {"window", "chunked"} for cache in caches)
    promoted = windows and _must_promote(caches, resolved)
    if promoted:
        page = max(cache.page_bytes for cache in caches)
        caches = [replace(cache, kind="full", window=None, page_bytes=page) for cache in caches]
    groups = tuple(
        CacheGroup(cache, len(here), sum(pages[place] for place in here))
        for cache, members, pages in _grouped(caches)
        for here in [[place for place in members if owners[place] in stage]]
    )
    return CacheLayout(groups, max(group.bytes for group in groups), promoted)


def layer_caches(mixer: Mixer, resolved: Resolved, tensor: int) -> Iterable[LayerCache]:
    """What one layer keeps: a cache, and the indexer's beside it where attention is sparse."""
    size, element = resolved.block_size, resolved.kv_bytes
    match mixer:
        case Attention() if mixer.cached:
            heads = max(1, mixer.kv_heads // tensor)
            page = math.ceil(size * heads * (mixer.head_dim + mixer.value_dim) * element)
            yield LayerCache(mixer.kind, page, size, mixer.window)
        case Latent():
            row = (mixer.kv_rank + mixer.rope_dim) * element
            if mixer.index_heads:
                row = SPARSE_LATENT_8BIT if element == 1 else row
                # one key of 8 bits an element and a 32-bit scale for every 128
                yield LayerCache("full", size * (mixer.index_dim + 4 * mixer.index_dim // 128), size, None)
            if resolved.version < defaults.CHUNKED_PREFILL_SINCE:
                row = math.ceil(row / 128) * 128  # engine V0 pads 576 elements to 640
            yield LayerCache("full", math.ceil(size * row), size, None)
        case Linear() | Mamba():
            states = 2 if resolved.prefix_caching and resolved.version >= (0, 12) else 1
            yield LayerCache("state", state_bytes(mixer, tensor), 0, None, states)
        case _:
            return


def state_bytes(mixer: Linear | Mamba, tensor: int) -> int:
    """Recurrent state and the inputs that the convolution still needs (16 bits), of one sequence on one GPU."""
    match mixer:
        case Linear():
            channels = 2 * mixer.key_heads * mixer.key_dim + mixer.value_heads * mixer.value_dim
            state = mixer.value_heads // tensor * mixer.value_dim * mixer.key_dim
        case Mamba():
            groups = math.ceil(mixer.groups / tensor) * tensor if mixer.groups % tensor else mixer.groups
            channels = mixer.heads * mixer.head_dim + 2 * groups * mixer.state
            state = mixer.heads // tensor * mixer.head_dim * mixer.state
    return state * mixer.state_bytes + channels // tensor * (mixer.conv_kernel - 1) * 2


def _aligned(caches: list[LayerCache], mixers: Sequence[Mixer], resolved: Resolved, tensor: int) -> list[LayerCache]:
    """With recurrent layers, attention takes blocks so long that a page holds a state, and states fill a page."""
    states = [cache for cache in caches if cache.kind == "state"]
    attention = [cache for cache in caches if cache.kind != "state"]
    if not states or not attention:
        return caches
    step = resolved.block_size
    if any(isinstance(mixer, Latent) for mixer in mixers):
        step = max(step, LATENT_HYBRID_STEP)
    per_token = max(cache.page_bytes / cache.block_size for cache in attention)
    largest = max(cache.page_bytes for cache in states)
    size = step * math.ceil(largest / (step * per_token))
    page = math.ceil(size * per_token)
    aligned = []
    for cache in caches:
        if cache.kind == "state":
            aligned.append(replace(cache, page_bytes=page, block_size=size))
        else:
            aligned.append(
                replace(cache, page_bytes=round(cache.page_bytes / cache.block_size * size), block_size=size)
            )
    return aligned


def _must_promote(caches: Sequence[LayerCache], resolved: Resolved) -> bool:
    if not resolved.hybrid_manager:
        return len({(cache.kind, cache.window) for cache in caches}) > 1
    if any(cache.kind == "chunked" for cache in caches) and resolved.version < defaults.CHUNKED_HYBRID_SINCE:
        return True
    mixed = len({cache.page_bytes for cache in caches}) > 1
    return mixed and resolved.version < defaults.MIXED_PAGES_SINCE


def _grouped(caches: Sequence[LayerCache]) -> list[tuple[LayerCache, Sequence[int], Sequence[int]]]:
    """Groups: what their layers keep, which caches belong to them, and the bytes of a page of every cache."""
    if len({(cache.kind, cache.window) for cache in caches}) == 1:
        # every layer holds the same tokens: one group, whatever the pages
        return [(caches[0], range(len(caches)), [cache.page_bytes for cache in caches])]
    page = max(cache.page_bytes for cache in caches)
    buckets: dict[LayerCache, list[int]] = {}
    for place, cache in enumerate(caches):
        buckets.setdefault(_with_page(cache, page), []).append(place)
    fewest, most = min(map(len, buckets.values())), max(map(len, buckets.values()))
    size = most if most < 1.5 * fewest else fewest
    groups: list[tuple[LayerCache, Sequence[int], Sequence[int]]] = []
    for cache, places in buckets.items():
        count = math.ceil(len(places) / size)
        # every so-manieth, so that the stages of a pipeline have alike shares of each group
        groups += [(cache, places[first::count], [page] * len(caches)) for first in range(count)]
    return groups


def _with_page(cache: LayerCache, page: int) -> LayerCache:
    """A smaller page is made as large as the largest by longer blocks, or by padding when they don't divide."""
    if cache.kind == "state" or page % cache.page_bytes:
        return replace(cache, page_bytes=page)
    return replace(cache, page_bytes=page, block_size=cache.block_size * (page // cache.page_bytes))
