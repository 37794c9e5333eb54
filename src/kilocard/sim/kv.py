"""Paged KV memory as a count of blocks: what PagedAttention's allocator decides, without the memory."""

from __future__ import annotations


class BlockPool:
    """`total` usable blocks of `block_size` tokens. A sequence holds whole blocks; the last one may be part empty."""

    __slots__ = ("block_size", "free", "total")

    def __init__(self, total: int, block_size: int) -> None:
        if total < 1 or block_size < 1:
            raise ValueError(f"a pool of {total} blocks of {block_size} tokens holds nothing")
        self.total = total
        self.block_size = block_size
        self.free = total

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def take(self, blocks: int) -> bool:
        """All of them or none."""
        if blocks > self.free:
            return False
        self.free -= blocks
        return True

    def give(self, blocks: int) -> None:
        self.free += blocks
        if self.free > self.total:
            raise AssertionError("more KV blocks were given back than taken")

    @property
    def used(self) -> int:
        return self.total - self.free

    @property
    def usage(self) -> float:
        """Share 0–1, as vLLM's kv_cache_usage_perc."""
        return self.used / self.total
