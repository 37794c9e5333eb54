"""What a language model inside a multi-modal config may leave out: transformers saves only what differs from its class.

So the text part of a 9B Qwen3.5 that was saved anew states no size at all. Values of transformers 5.19.
"""

from __future__ import annotations

from typing import Any

_GATED_DELTA = {
    "head_dim": 256, "vocab_size": 248320, "max_position_embeddings": 32768, "num_attention_heads": 16,
    "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 16,
    "linear_num_value_heads": 32, "full_attention_interval": 4,
}  # fmt: skip
_QWEN_2_VL = {
    "hidden_size": 8192, "intermediate_size": 29568, "num_hidden_layers": 80, "num_attention_heads": 64,
    "num_key_value_heads": 8, "vocab_size": 152064, "max_position_embeddings": 32768,
}  # fmt: skip
_QWEN_3 = {
    "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 32, "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 32768,
}  # fmt: skip

#: by model_type
NESTED_DEFAULTS: dict[str, dict[str, Any]] = {
    "llama": {
        "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
        "vocab_size": 32000,
    },
    "mistral": {
        "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 32000,
    },
    "qwen2": {
        "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 32, "vocab_size": 151936,
    },
    "qwen2_vl_text": _QWEN_2_VL,
    "qwen2_5_vl_text": _QWEN_2_VL,
    "qwen3": _QWEN_3,
    "qwen3_vl_text": _QWEN_3 | {"max_position_embeddings": 128000},
    "qwen3_moe": {
        "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 24, "num_attention_heads": 32,
        "num_key_value_heads": 4, "vocab_size": 151936, "max_position_embeddings": 32768, "num_experts": 128,
        "num_experts_per_tok": 8, "moe_intermediate_size": 768,
    },
    "qwen3_vl_moe_text": {
        "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 24, "num_attention_heads": 16,
        "num_key_value_heads": 16, "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 128000,
        "num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 1408,
    },
    "qwen3_5_text": _GATED_DELTA | {
        "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 32, "num_key_value_heads": 4,
    },
    "qwen3_5_moe_text": _GATED_DELTA | {
        "hidden_size": 2048, "num_hidden_layers": 40, "num_key_value_heads": 2, "num_experts": 256,
        "num_experts_per_tok": 8, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
    },
    "gemma2": {
        "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8,
        "max_position_embeddings": 8192, "vocab_size": 256000,
    },
    "gemma3_text": {"hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26},
    "gemma4_text": {
        "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 30, "num_attention_heads": 8,
        "num_key_value_heads": 4, "vocab_size": 262144, "hidden_size_per_layer_input": 256,
    },
}  # fmt: skip
