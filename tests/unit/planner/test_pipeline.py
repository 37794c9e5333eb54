"""Pipeline stages: even work, not even numbers of layers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilocard.perf.architecture import Architecture
from kilocard.perf.read_config import read_architecture
from kilocard.planner.pipeline import better_stages, even_stages, usual_stages


def llama(layers: int = 80, *, hidden: int = 8192, vocab: int = 128_256, intermediate: int = 28_672) -> Architecture:
    return read_architecture(
        {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": hidden,
            "num_hidden_layers": layers,
            "num_attention_heads": 64,
            "num_key_value_heads": 8,
            "intermediate_size": intermediate,
            "vocab_size": vocab,
            "max_position_embeddings": 8192,
            "torch_dtype": "bfloat16",
        },
        name="llama",
    )


def test_seventy_billion_in_two_stages_is_even_enough() -> None:
    stages = usual_stages(llama(), 2)
    assert stages.layers == (40, 40)
    assert stages.work[1] > stages.work[0]  # the head is on the last stage
    assert stages.balance > 0.98
    assert better_stages(llama(), 2) is None


def test_layers_that_are_left_over_go_before_the_last_stage() -> None:
    assert usual_stages(llama(30), 4).layers == (7, 8, 8, 7)


def test_a_large_head_on_a_small_model_is_worth_moving_layers() -> None:
    small = llama(16, hidden=1024, vocab=256_000, intermediate=4096)
    better = better_stages(small, 4)
    assert better is not None
    assert better.layers[-1] < better.layers[0]
    assert better.balance > usual_stages(small, 4).balance
    assert better.setting() == ",".join(map(str, better.layers))


@given(st.integers(4, 60), st.integers(1, 4))
def test_even_stages_hold_every_layer_and_are_never_worse(layers: int, pipeline: int) -> None:
    shape = llama(layers, hidden=1024, vocab=64_000, intermediate=2048)
    even = even_stages(shape, pipeline)
    assert sum(even.layers) == layers and len(even.layers) == pipeline and min(even.layers) >= 1
    assert sum(even.work) == pytest.approx(1)
    assert even.balance >= usual_stages(shape, pipeline).balance - 1e-9
