"""Shapes of models from config.json: parameters known from the checkpoints, layer kinds, problems."""

from __future__ import annotations

from typing import Any

import pytest

from kilocard.core.errors import SpecError
from kilocard.perf.layers import Attention, Latent
from kilocard.perf.read_config import read_architecture

LLAMA_8B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
    "tie_word_embeddings": False, "max_position_embeddings": 131072, "torch_dtype": "bfloat16",
}  # fmt: skip
DEEPSEEK_V3: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 7168, "num_hidden_layers": 61, "vocab_size": 129280,
    "num_attention_heads": 128, "num_key_value_heads": 128, "intermediate_size": 18432, "moe_intermediate_size": 2048,
    "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3,
    "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "tie_word_embeddings": False, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}  # fmt: skip
GPT_OSS_20B: dict[str, Any] = {
    "architectures": ["GptOssForCausalLM"], "hidden_size": 2880, "num_hidden_layers": 24, "vocab_size": 201088,
    "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 2880,
    "sliding_window": 128, "num_local_experts": 32, "num_experts_per_tok": 4, "tie_word_embeddings": False,
    "layer_types": ["sliding_attention", "full_attention"] * 12, "quantization_config": {"quant_method": "mxfp4"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "parameters"),
    [(LLAMA_8B, 8_030_261_248), (DEEPSEEK_V3, 671_026_000_000), (GPT_OSS_20B, 20_914_000_000)],
    ids=["llama", "deepseek", "gpt-oss"],
)
def test_parameters_are_the_checkpoints(config: dict[str, Any], parameters: int) -> None:
    assert read_architecture(config).parameters == pytest.approx(parameters, rel=1e-4)


def test_active_parameters_count_only_the_chosen_experts() -> None:
    assert read_architecture(DEEPSEEK_V3).active_parameters == pytest.approx(36.6e9, rel=0.01)


def test_layer_groups_of_a_model_with_windows() -> None:
    groups = read_architecture(GPT_OSS_20B).layer_groups
    assert [(group.kind, group.layers) for group in groups] == [("window", 12), ("full", 12)]
    window = groups[0].mixer
    assert isinstance(window, Attention) and window.window == 128 and window.head_dim == 64


def test_a_latent_cache_has_one_kv_head() -> None:
    architecture = read_architecture(DEEPSEEK_V3)
    assert architecture.kv_heads == 1 and architecture.heads == 128
    assert isinstance(architecture.layer_groups[0].mixer, Latent)


def test_head_size_is_the_field_not_the_quotient() -> None:
    assert read_architecture(GPT_OSS_20B).head_dim == 64
    assert read_architecture(LLAMA_8B).head_dim == 128


def test_a_nested_config_is_read_through_and_its_tower_counted() -> None:
    nested = {
        "architectures": ["Mistral3ForConditionalGeneration"],
        "text_config": LLAMA_8B,
        "vision_config": {
            "hidden_size": 1024,
            "num_hidden_layers": 24,
            "intermediate_size": 4096,
            "hidden_act": "silu",
        },
    }
    architecture = read_architecture(nested, name="m")
    assert architecture.vision
    assert architecture.parameters - read_architecture(LLAMA_8B).parameters == architecture.tower_parameters
    assert architecture.tower_parameters == pytest.approx(0.4e9, rel=0.1)


def test_gemma_3_leaves_out_what_its_class_knows() -> None:
    config = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "text_config": {
            "model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34,
            "sliding_window": 1024,
        },
    }  # fmt: skip
    architecture = read_architecture(config)
    assert (architecture.heads, architecture.kv_heads, architecture.head_dim) == (8, 4, 256)
    assert [(group.kind, group.layers) for group in architecture.layer_groups] == [("window", 29), ("full", 5)]
    assert architecture.tied


def test_qwen2_states_a_window_that_it_does_not_use() -> None:
    config = LLAMA_8B | {"architectures": ["Qwen2ForCausalLM"], "sliding_window": 4096, "use_sliding_window": False}
    assert [group.kind for group in read_architecture(config).layer_groups] == ["full"]


def test_mistral_uses_its_window_everywhere() -> None:
    config = LLAMA_8B | {"architectures": ["MistralForCausalLM"], "sliding_window": 4096}
    assert [group.kind for group in read_architecture(config).layer_groups] == ["window"]


def test_every_problem_is_reported_at_once() -> None:
    broken = {key: value for key, value in LLAMA_8B.items() if key not in {"hidden_size", "vocab_size"}}
    with pytest.raises(SpecError) as caught:
        read_architecture(broken | {"num_attention_heads": -3}, name="x")
    lines = str(caught.value).splitlines()
    assert len(lines) == 3 and all(line.startswith("x: ") for line in lines)
    assert "hidden_size" in lines[0] and "vocab_size" in lines[1] and "-3" in lines[2]


@pytest.mark.parametrize("family", ["Phi3ForCausalLM", "Starcoder2ForCausalLM", "MixtralForCausalLM"])
def test_others_use_their_window_everywhere_too(family: str) -> None:
    config = LLAMA_8B | {"architectures": [family], "sliding_window": 4096}
    assert [group.kind for group in read_architecture(config).layer_groups] == ["window"]
    longer = config | {"sliding_window": 262144}  # never reached
    assert [group.kind for group in read_architecture(longer).layer_groups] == ["full"]


def test_a_language_model_inside_another_may_leave_out_what_its_class_knows() -> None:
    """LLaVA 1.5 says of its language model that it is a LLaMA with a vocabulary of 32,064."""
    config = {
        "architectures": ["LlavaForConditionalGeneration"], "model_type": "llava", "tie_word_embeddings": False,
        "text_config": {"model_type": "llama", "vocab_size": 32064, "max_position_embeddings": 4096},
        "vision_config": {
            "model_type": "clip_vision_model", "hidden_size": 1024, "intermediate_size": 4096, "image_size": 336,
            "num_hidden_layers": 24, "num_attention_heads": 16, "patch_size": 14,
        },
    }  # fmt: skip
    assert read_architecture(config).parameters == pytest.approx(7_063_427_072, rel=1e-4)
    with pytest.raises(SpecError, match="hidden_size"):
        read_architecture({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 32064})


def test_heads_may_differ_from_layer_to_layer() -> None:
    config = LLAMA_8B | {"architectures": ["LagunaForCausalLM"], "num_attention_heads_per_layer": [32, 64] * 16}
    heads = [
        group.mixer.heads for group in read_architecture(config).layer_groups if isinstance(group.mixer, Attention)
    ]
    assert heads == [32, 64]


FALCON_H1: dict[str, Any] = {
    "architectures": ["FalconH1ForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 32, "vocab_size": 128000,
    "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "tie_word_embeddings": False,
    "mamba_n_heads": 128, "mamba_d_head": 8, "mamba_d_state": 256, "mamba_n_groups": 1, "mamba_d_conv": 4,
}  # fmt: skip


def test_falcon_h1_has_attention_and_mamba_side_by_side() -> None:
    """Its class's default config, counted by transformers 5.19."""
    architecture = read_architecture(FALCON_H1)
    assert architecture.parameters == pytest.approx(8_514_961_408, rel=1e-3)
    assert [(group.kind, group.layers) for group in architecture.layer_groups] == [("mamba", 32), ("full", 32)]


def test_layers_are_mamba_where_nothing_names_attention() -> None:
    config = FALCON_H1 | {"architectures": ["BambaForCausalLM"]}
    alone = read_architecture(config)
    assert [group.kind for group in alone.layer_groups] == ["mamba"] and "every layer is Mamba" in alone.assumptions[0]
    named = read_architecture(config | {"attn_layer_indices": [9, 19, 29]})
    assert [group.layers for group in named.layer_groups] == [29, 3] and not named.assumptions
