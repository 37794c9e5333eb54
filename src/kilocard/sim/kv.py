"""Paged KV memory as a count of blocks: what PagedAttention's allocator decides, without the memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kilocard.sim.prefix_pool import Cached
    from kilocard.sim.sequence import Sequence


class Match(NamedTuple):
    """What the prefix cache has of a waiting request's tokens."""

    #: blocks of its keys
    named: list[Cached]
    #: blocks of its own, from before a preemption
    own: int
    #: how many of all these nobody holds now: they count as free, and are no longer when it takes them
    idle: int

    @property
    def blocks(self) -> int:
        return len(self.named) + self.own


NO_MATCH = Match([], 0, 0)


class BlockPool:
    """`total` usable blocks of `block_size` tokens. A sequence holds whole blocks; the last one may be part empty.

    Without a prefix cache (PrefixPool has one): blocks are a number.
    """

    __slots__ = ("block_size", "free", "reserved", "total")

    def __init__(self, total: int, block_size: int) -> None:
        if total < 1 or block_size < 1:
            raise ValueError(f"a pool of {total} blocks of {block_size} tokens holds nothing")
        self.total = total
        self.block_size = block_size
        self.free = total
        #: free ones that the next step may not take yet
        self.reserved = 0

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def take(self, blocks: int) -> bool:
        """All of them or none."""
        if blocks > self.free - self.reserved:
            return False
        self.free -= blocks
        return True

    def match(self, sequence: Sequence) -> Match:
        """What is cached of a waiting request. Changes nothing."""
        return NO_MATCH

    def adopt(self, sequence: Sequence, match: Match) -> None:
        """The matched blocks are the sequence's now."""

    def fill(self, sequence: Sequence) -> None:
        """Blocks of its prompt are full (or will be when the step is over): others may find them."""

    def release(self, sequence: Sequence) -> None:
        """All its blocks are free again."""
        self.give(sequence.blocks)
        sequence.blocks = 0

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
