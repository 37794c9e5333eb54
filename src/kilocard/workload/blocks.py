"""Prefix blocks: ids that stand for equal text at equal places."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count

from kilocard.core.errors import UsageError
from kilocard.workload.request import WorkloadRequest


def whole_blocks(ids: Sequence[int], input_tokens: int, block_tokens: int) -> tuple[int, ...] | None:
    """The ids of whole blocks; None if so many ids do not fit so many tokens.

    Traces give the last, partial block an id too. No engine shares a partial block, so it is dropped.
    """
    whole = input_tokens // block_tokens
    if len(ids) not in {whole, -(-input_tokens // block_tokens)}:
        return None
    return tuple(ids[:whole])


def finer(requests: Iterable[WorkloadRequest], block_tokens: int = 16) -> list[WorkloadRequest]:
    """Cut each block into ones of `block_tokens` tokens (vLLM's default is 16), with ids of their own.

    A block of 512 tokens with id i becomes 32 with the ids 32·i … 32·i + 31. What is shared stays as it was.
    """
    cut = []
    for request in requests:
        if request.blocks and request.block_tokens != block_tokens:
            parts, rest = divmod(request.block_tokens, block_tokens)
            if rest:
                raise UsageError(f"blocks of {request.block_tokens} tokens can't be cut into blocks of {block_tokens}")
            ids = tuple(parts * each + part for each in request.blocks for part in range(parts))
            request = replace(request, blocks=ids, block_tokens=block_tokens)
        cut.append(request)
    return cut


def unused_ids(requests: Iterable[WorkloadRequest]) -> count[int]:
    """Ids that no block of these requests has, without end."""
    return count(1 + max((max(request.blocks) for request in requests if request.blocks), default=-1))


def prefix_hits(requests: Iterable[WorkloadRequest]) -> tuple[int, int]:
    """(blocks found, blocks asked for) by a prefix cache without end, in the order given.

    A partial last block is asked for and never found: the share is of all the text. This is the ceiling of what
    routing by prefix can win.
    """
    seen: set[tuple[int, int]] = set()
    found = asked = 0
    for request in requests:
        if not request.block_tokens:
            continue
        asked += -(-request.input_tokens // request.block_tokens)
        keys = [(request.block_tokens, each) for each in request.blocks]
        for key in keys:
            if key not in seen:
                break
            found += 1
        seen.update(keys)
    return found, asked
