"""Paged KV memory with vLLM's prefix cache: blocks found by their text, counted references, least recently used out.

vLLM 0.32 keeps one queue of free blocks. A freed block without a hash (part full) goes to its front, one with a hash
to its back, a request's last block first; new blocks come from the front and lose their hash. So the queue is always
some blank blocks, which are but a number here, and behind them the cached ones in the order of their eviction.

A request's blocks that no other request can ever find (its output, and the part of its prompt that has no key) are
queued as one entry with a size, which shrinks from its end as vLLM would evict it. What a request costs here grows
with its shared blocks, not with its length.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence as Ids
from itertools import islice
from typing import TYPE_CHECKING

from kilocard.core.errors import EngineError
from kilocard.sim.kv import NO_MATCH, BlockPool, Match

if TYPE_CHECKING:
    from kilocard.sim.sequence import Sequence


class Cached:
    """One block that others can find by its key, or (no key) a request's own ones."""

    __slots__ = ("key", "refs", "size")

    def __init__(self, key: int | None, refs: int, size: int) -> None:
        self.key = key
        #: requests that hold it; at 0 it is in the queue
        self.refs = refs
        self.size = size


class PrefixPool(BlockPool):
    __slots__ = ("_blank", "_by_key", "_queue")

    def __init__(self, total: int, block_size: int) -> None:
        super().__init__(total, block_size)
        #: free blocks with nothing in them
        self._blank = total
        #: free blocks that can still be found, the next to be evicted first
        self._queue: OrderedDict[Cached, None] = OrderedDict()
        #: Two requests that computed the same text side by side leave the same block twice, as in vLLM: all of them,
        #: the oldest first.
        self._by_key: dict[int, Cached | list[Cached]] = {}

    @property
    def cached(self) -> int:
        """Keys that would be found now."""
        return len(self._by_key)

    def take(self, blocks: int) -> bool:
        if blocks > self.free - self.reserved:
            return False
        self.free -= blocks
        if blocks <= self._blank:
            self._blank -= blocks
            return True
        blocks -= self._blank
        self._blank = 0
        queue = self._queue
        while blocks:
            oldest = next(iter(queue))
            if oldest.size > blocks:
                oldest.size -= blocks
                break
            del queue[oldest]
            blocks -= oldest.size
            oldest.size = 0
            if oldest.key is not None:
                self._forget(oldest, oldest.key)
        return True

    def match(self, sequence: Sequence) -> Match:
        if not sequence.keys and sequence.own is None:
            return NO_MATCH
        # One token at least must be computed, so a full last block is never found.
        most = (sequence.prompt + sequence.emitted - 1) // self.block_size
        named: list[Cached] = []
        idle = 0
        find = self._by_key.get
        for key in islice(sequence.keys, most):
            found = find(key)
            if found is None:
                break
            if isinstance(found, list):
                found = found[0]
            named.append(found)
            if not found.refs:
                idle += 1
        own = 0
        if sequence.own is not None and len(named) == len(sequence.keys):
            own = min(sequence.own.size, most - len(named))
            idle += own
        return Match(named, own, idle)

    def adopt(self, sequence: Sequence, match: Match) -> None:
        if match is NO_MATCH:
            return
        queue = self._queue
        for block in match.named:
            if not block.refs:
                del queue[block]
            block.refs += 1
        own = sequence.own
        if own is not None:
            if match.own:
                own.size -= match.own
                if not own.size:
                    del queue[own]
            # What it does not take now is recomputed, and stays in the queue as anybody's room.
            sequence.own = None
        self.free -= match.idle
        sequence.named = match.named
        sequence.blocks = match.blocks

    def fill(self, sequence: Sequence) -> None:
        named, keys = sequence.named, sequence.keys
        if not keys:
            return
        full = min(sequence.computed // self.block_size, len(keys))
        for place in range(len(named), full):
            key = keys[place]
            block = Cached(key, 1, 1)
            known = self._by_key.get(key)
            if known is None:
                self._by_key[key] = block
            elif isinstance(known, list):
                known.append(block)
            else:
                self._by_key[key] = [known, block]
            named.append(block)

    def release(self, sequence: Sequence) -> None:
        named = sequence.named
        own = max(0, sequence.computed // self.block_size - len(sequence.keys))
        blank = sequence.blocks - len(named) - own
        self._blank += blank
        idle = 0
        if own:
            sequence.own = Cached(None, 0, own)
            self._queue[sequence.own] = None
        for block in reversed(named):
            block.refs -= 1
            if not block.refs:
                self._queue[block] = None
                idle += 1
        sequence.named = []
        sequence.blocks = 0
        self.give(blank + own + idle)

    def _forget(self, block: Cached, key: int) -> None:
        known = self._by_key[key]
        if isinstance(known, list):
            known.remove(block)
            if not known:
                del self._by_key[key]
        else:
            del self._by_key[key]


def block_keys(ids: Ids[int], block_tokens: int, block_size: int, prompt_tokens: int) -> tuple[int, ...]:
    """Keys of the prompt's whole blocks of `block_size` tokens, from ids of blocks of `block_tokens` tokens.

    A key stands for all the text up to its block's end, as vLLM's chained hashes do. Raises EngineError when neither
    size is a multiple of the other.
    """
    keys: list[int] = []
    key = 0
    parts, rest = divmod(block_tokens, block_size)
    if parts and not rest:
        for each in ids:
            key = hash((key, each))
            keys.extend(range(key, key + parts))
    elif block_tokens > 0 and block_size % block_tokens == 0:
        together = block_size // block_tokens
        for place, each in enumerate(ids, 1):
            key = hash((key, each))
            if place % together == 0:
                keys.append(key)
    else:
        raise EngineError(
            f"prefix blocks of {block_tokens} tokens fit no KV blocks of {block_size}: one must be a multiple of the "
            "other; set the profile's block_size"
        )
    del keys[prompt_tokens // block_size :]
    return tuple(keys)
