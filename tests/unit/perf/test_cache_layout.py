"""Blocks, groups and concurrency against vLLM's own functions.

`tests/data/cache-layouts-vllm.csv` is what `get_kv_cache_configs` and `get_max_concurrency_for_kv_cache_config` of vLLM
0.32.0 (v1/core/kv_cache_utils.py) say for caches of 20 GiB a GPU and 8,192 tokens a step, with specs made from the same
shapes; 2,945 combinations were compared, these are kept.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from kilocard.cli.model_source import model_source
from kilocard.perf.gpus import gpu
from kilocard.perf.layout import Layout
from kilocard.perf.memory import memory
from kilocard.perf.setting import EngineSetting

GIVEN_GIB, BATCHED = 20, 8192
FACTS: dict[str, list[dict[str, str]]] = {}
with (Path(__file__).parents[2] / "data" / "cache-layouts-vllm.csv").open(newline="") as file:
    for row in csv.DictReader(file):
        FACTS.setdefault(row["model"], []).append(row)


@pytest.mark.parametrize("model", FACTS)
def test_blocks_and_concurrency_are_vllm_s(model: str) -> None:
    architecture = model_source(model).architecture
    for fact in FACTS[model]:
        pipeline, length = int(fact["pipeline"]), int(fact["max_model_len"])
        setting = EngineSetting(
            version="0.32", max_model_len=length, max_num_batched_tokens=BATCHED, max_num_seqs=128,
            block_size=int(fact["block_size"]), kv_cache_dtype=fact["kv_dtype"], weights_gib=1, image_tokens=1,
            kv_gib=GIVEN_GIB,
        )  # fmt: skip
        found = memory(architecture, gpu("H200-141GB"), Layout(int(fact["tensor"]), pipeline), setting)
        caches = [stage.cache for stage in found.stages]
        blocks = min(cache.blocks(GIVEN_GIB * 2**30) for cache in caches)
        held = {cache.blocks_per_request(length, (pipeline + 1) * BATCHED) for cache in caches}
        assert blocks == int(fact["blocks"]), fact
        assert len(held) == 1, "a request holds blocks of every group on every stage"
        assert blocks / held.pop() == pytest.approx(float(fact["concurrency"]), rel=1e-3), fact
        assert {len(cache.groups) for cache in caches} == {int(fact["groups"])}, fact
