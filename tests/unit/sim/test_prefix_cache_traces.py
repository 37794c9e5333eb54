"""The engine's prefix cache on the public traces. Runs where KILOCARD_TRACES names a folder with them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kilocard.perf.builtin import A100_7B
from kilocard.sim.fast import FastEngine
from kilocard.workload.blocks import prefix_hits
from kilocard.workload.read import read_trace

FOLDER = os.environ.get("KILOCARD_TRACES") or None
pytestmark = [
    pytest.mark.traces,
    pytest.mark.skipif(FOLDER is None, reason="KILOCARD_TRACES names no folder with the public traces"),
]

#: one engine with room for everything, that prefills any prompt in one step
PROFILE = replace(A100_7B, block_size=512, kv_tokens=512 * 1_000_000, max_num_batched_tokens=1_000_000)


def path(name: str) -> Path:
    return Path(FOLDER or "") / f"mooncake-fast25-{name}.jsonl"


def found(prompts: Iterable[Sequence[int]]) -> int:
    """Blocks that the cache had, one prompt after the other."""
    engine = FastEngine(PROFILE, prefix_cache=True)
    for number, blocks in enumerate(prompts):
        now = number * 1e5
        engine.advance(now)
        # One token follows the blocks: without it the last one would not be looked for, since something has to be
        # computed.
        engine.add(str(number), 512 * len(blocks) + 1, 1, now, blocks=blocks, block_tokens=512)
        engine.next_at()
    return engine.counters.prefix_hits // 512


@pytest.mark.parametrize(("name", "percent"), [("conversation", 36.6), ("synthetic", 64.0)])
def test_an_endless_cache_finds_the_share_that_is_quoted(name: str, percent: float) -> None:
    """Which counts partial last blocks as the trace gives them ids."""
    prompts = [json.loads(line)["hash_ids"] for line in path(name).read_text().splitlines()]
    assert round(100 * found(prompts) / sum(map(len, prompts)), 1) == percent


@pytest.mark.parametrize(("name", "percent"), [("conversation", 36.6), ("synthetic", 63.8)])
def test_of_whole_blocks_it_finds_those_that_the_trace_has(name: str, percent: float) -> None:
    with path(name).open() as lines:
        requests = read_trace(lines).requests
    hits, asked = prefix_hits(requests)
    assert found(request.blocks for request in requests) == hits
    assert round(100 * hits / asked, 1) == percent
