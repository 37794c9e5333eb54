"""DeepSeek's sparse attention: an indexer's kernels take time in every layer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.ground_truth.speed_points import architecture

from kilocard.perf.architecture import Architecture
from kilocard.perf.gpus import gpu
from kilocard.perf.layers import Latent
from kilocard.perf.layout import Layout
from kilocard.perf.link import inside
from kilocard.perf.modelled import INDEXER_LAYERS, step_times
from kilocard.perf.prior_numbers import PRIORS
from kilocard.perf.step_work import step_work

CARD = gpu("H200-141GB")


def without_indexer(model: Architecture) -> Architecture:
    return replace(
        model,
        blocks=tuple(
            replace(block, mixer=replace(block.mixer, index_heads=0, index_dim=0))
            if isinstance(block.mixer, Latent)
            else block
            for block in model.blocks
        ),
    )


def test_each_indexed_layer_takes_a_layer_and_a_half_more() -> None:
    glm, prior = architecture("zai-org/GLM-5"), PRIORS["sglang"]
    works = [step_work(each, CARD, Layout(tensor=8), quantization=None) for each in (glm, without_indexer(glm))]
    assert [work.indexed_layers for work in works] == [78, 0]
    with_it, plain = (
        step_times(work, CARD, Layout(tensor=8), prior.reach, prior.generations, inside(CARD)).step_fixed_s
        for work in works
    )
    assert with_it - plain == pytest.approx(78 * INDEXER_LAYERS * prior.reach.layer_s)


def test_latent_attention_alone_has_no_indexer() -> None:
    assert (
        step_work(architecture("deepseek-ai/DeepSeek-R1"), CARD, Layout(tensor=8), quantization=None).indexed_layers
        == 0
    )
