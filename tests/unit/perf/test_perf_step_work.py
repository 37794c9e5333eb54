"""What a step has to do, counted against known models."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.ground_truth.speed_points import architecture

from kilocard.perf.architecture import Architecture
from kilocard.perf.gpus import gpu
from kilocard.perf.layout import Layout
from kilocard.perf.quantization import quantization
from kilocard.perf.read_config import read_architecture
from kilocard.perf.step_work import StepWork, step_work

H100, A100, B200 = gpu("H100"), gpu("A100"), gpu("B200")
LLAMA = architecture("meta-llama/Llama-3.1-70B-Instruct")
DEEPSEEK = architecture("deepseek-ai/DeepSeek-R1")
GPT_OSS = architecture("openai/gpt-oss-120b")


def work(model: Architecture, tensor: int = 1, **changes: Any) -> StepWork:
    changes = {"quantization": model.quantization, **changes}
    card = changes.pop("card", H100)
    layout = changes.pop("layout", Layout(tensor=tensor))
    return step_work(model, card, layout, **changes)


def test_a_dense_model_reads_its_weights_and_multiplies_each_twice() -> None:
    one = work(LLAMA)
    embedding = LLAMA.vocab * LLAMA.hidden
    assert one.weight_bytes == pytest.approx(2 * (LLAMA.parameters - embedding), rel=0.001)
    assert one.products[False, 16] == pytest.approx(2 * (LLAMA.parameters - 2 * embedding), rel=0.001)
    assert one.head_operations == pytest.approx(2 * embedding, rel=0.001)
    assert one.kv_bytes == 80 * 2 * 8 * 128 * 2
    assert one.pair_operations == 80 * 64 * 128 * 4
    assert (one.layers, one.all_reduces, one.expert_bytes) == (80, 160, 0)


def test_tensor_parallelism_cuts_everything_but_what_it_must_repeat() -> None:
    one, eight, sixteen = (work(LLAMA, tensor) for tensor in (1, 8, 16))
    assert eight.weight_bytes == pytest.approx(one.weight_bytes / 8, rel=0.001)
    assert eight.kv_bytes == one.kv_bytes / 8
    assert sixteen.kv_bytes == eight.kv_bytes  # 8 KV heads: the other eight GPUs hold copies
    assert work(DEEPSEEK, 8).kv_bytes == work(DEEPSEEK).kv_bytes  # one latent vector for all heads


def test_a_mixture_reads_its_experts_by_the_batch() -> None:
    one = work(DEEPSEEK)
    assert one.latent and one.expert_share == pytest.approx(8 / 256)
    assert one.expert_bytes + one.weight_bytes == pytest.approx(671e9, rel=0.01)  # FP8
    # of each token: 37 billion parameters active, two operations each, the head apart
    assert sum(one.products.values()) == pytest.approx(2 * (DEEPSEEK.active_parameters - 129280 * 7168), rel=0.01)
    assert one.kv_bytes == 61 * 576 * 2


def test_short_windows_cost_the_same_at_any_length() -> None:
    """gpt-oss: half of the layers look back 128 tokens."""
    one = work(GPT_OSS)
    layer = 2 * 8 * 64 * 2
    assert one.kv_bytes == 18 * layer
    assert one.sequence_bytes == 18 * layer * 128


def test_a_recurrent_state_is_read_and_written_once_a_token() -> None:
    hybrid = architecture("Qwen/Qwen3.5-397B-A17B")
    one = work(hybrid)
    assert one.kv_bytes == 15 * 2 * 2 * 256 * 2
    assert one.sequence_bytes == 45 * 64 * 128 * 128 * 4 * 2


@pytest.mark.parametrize(
    ("card", "name", "operands"),
    [
        (H100, "fp8", 8), (A100, "fp8", 16), (A100, "w8a8", 8), (H100, "awq", 16), (B200, "nvfp4", 4),
        (H100, "nvfp4", 16),
    ],
)  # fmt: skip
def test_products_have_the_width_that_the_card_can_do(card: Any, name: str, operands: int) -> None:
    found = work(LLAMA, card=card, quantization=quantization(name))
    assert {bits for _, bits in found.products} == {operands}


def test_data_parallel_ranks_share_tokens_and_caches() -> None:
    one, two = work(DEEPSEEK, 8), work(DEEPSEEK, layout=Layout(tensor=8, data=2, expert=16))
    assert two.kv_bytes == one.kv_bytes / 2
    assert two.expert_bytes == pytest.approx(one.expert_bytes / 2)


def test_a_tied_embedding_is_read_as_the_head() -> None:
    config = {
        "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
        "num_key_value_heads": 4, "intermediate_size": 128, "vocab_size": 640, "torch_dtype": "bfloat16",
    }  # fmt: skip
    tied, untied = (work(read_architecture({**config, "tie_word_embeddings": tie})) for tie in (True, False))
    assert tied.weight_bytes == untied.weight_bytes


@pytest.mark.parametrize("family", ["GPT2LMHeadModel", "OPTForCausalLM", "GPTBigCodeForCausalLM"])
def test_learned_positions_are_looked_up_and_cost_no_step(family: str) -> None:
    shape = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
    config = shape | {"architectures": [family], "vocab_size": 50257, "max_position_embeddings": 1024}
    learned = read_architecture(config)
    assert learned.position_elements
    without = replace(learned, position_elements=0)
    assert work(learned).weight_bytes == work(without).weight_bytes
