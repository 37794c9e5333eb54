"""One layer's cache, and groups of layers that share blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LayerCache:
    #: full, window, chunked, or state (recurrent)
    kind: str
    #: bytes of one block of this layer
    page_bytes: int
    #: tokens in a block
    block_size: int
    #: tokens that stay reachable, None = all
    window: int | None
    #: blocks that a request holds when the kind is "state"
    states: int = 1

    def blocks_held(self, length: int, in_flight: int) -> int:
        """Blocks that a request of `length` tokens holds at its peak."""
        if self.kind == "state":
            return self.states
        if self.window is None:
            return math.ceil(length / self.block_size)
        if self.kind == "chunked":
            return math.ceil(min(self.window + in_flight, length) / self.block_size)
        # one more: a window need not begin where a block does
        return math.ceil(min(self.window - 1 + in_flight, length) / self.block_size) + 1


@dataclass(frozen=True, slots=True)
class CacheGroup:
    """Layers whose blocks are given out together."""

    cache: LayerCache
    #: of this stage
    layers: int
    #: of a block, for those layers
    bytes: int
