"""quantization_config of every kind that a config.json brings, read into bits, groups and what is left alone."""

from __future__ import annotations

from typing import Any

import pytest

from kilocard.core.errors import SpecError
from kilocard.perf.parameters import ATTENTION, EXPERTS, HEAD, MLP
from kilocard.perf.quantization import quantization
from kilocard.perf.read_config import read_architecture
from kilocard.perf.read_quantization import read_quantization
from kilocard.perf.usual_weights import usual

GROUP = {"num_bits": 4, "type": "int", "group_size": 128, "strategy": "group", "symmetric": True}
CHANNEL_8 = {"num_bits": 8, "type": "float", "strategy": "channel"}
NVFP4_GROUP = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}


def tensors(**groups: Any) -> dict[str, Any]:
    return {"quant_method": "compressed-tensors", "config_groups": groups}


@pytest.mark.parametrize(
    ("config", "method", "bits"),
    [
        ({"quant_method": "fp8"}, "fp8", 8),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8", 8.002),
        ({"quant_method": "fbgemm_fp8"}, "fp8", 8),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "int4", 4.156),
        ({"quant_method": "gptq", "bits": 4, "group_size": 64}, "int4", 4.3125),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, "int8", 8),
        ({"quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": True}, "int4", 4.125),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes", 4.133),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "bitsandbytes", 8),
        ({"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4}}}, "int4", 4.156),
        ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp8_e4m3"}}}, "fp8", 8),
        ({"quant_method": "quark", "global_quant_config": {"weight": [{"dtype": "fp4"}]}}, "mxfp4", 4.25),
        ({"quant_method": "torchao", "quant_type": {"default": {"_type": "Int4WeightOnlyConfig"}}}, "int4", 4.125),
        ({"quant_method": "torchao", "quant_type": {"default": {"_type": "Float8DynamicActivation"}}}, "fp8", 8),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4", 4.5),
        ({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4"}}, "nvfp4", 4.5),
        ({"quant_method": "mxfp4"}, "mxfp4", 4.25),
        (tensors(group_0={"weights": GROUP, "input_activations": None}), "int4", 4.125),
        (tensors(group_0={"weights": CHANNEL_8}), "fp8", 8),
        (tensors(group_0={"weights": NVFP4_GROUP}), "nvfp4", 4.5),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)  # fmt: skip
def test_methods(config: dict[str, Any], method: str, bits: float) -> None:
    found = read_quantization({"quantization_config": config, "num_hidden_layers": 2})
    assert found is not None and found.method == method
    assert found.weight_bits == pytest.approx(bits, rel=1e-3)
    assert found.bits_of(HEAD, 16) == 16


def test_a_config_without_one_has_plain_weights() -> None:
    assert read_quantization({"quantization_config": None}) is None
    assert read_quantization({}) is None


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (["fp8"], "an object was expected, this is a list"),
        ({"bits": 4}, "quant_method is missing"),
        ({"quant_method": "exl2", "bits": 4.25}, "'exl2' is not known"),
    ],
)
def test_what_can_t_be_read_is_said(config: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        read_quantization({"quantization_config": config})


@pytest.mark.parametrize(
    "config",
    [
        {"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"},
        {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}, "quant_method": "modelopt"},
        {"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8, "type": "float"}},
    ],
)
def test_the_checkpoint_may_want_an_8_bit_cache(config: dict[str, Any]) -> None:
    found = read_quantization({"quantization_config": config})
    assert found is not None and found.kv_bits == 8


def test_experts_may_be_in_fewer_bits_than_the_rest() -> None:
    config = tensors(
        group_0={"weights": CHANNEL_8, "targets": ["re:.*self_attn.*"]},
        group_1={"weights": NVFP4_GROUP, "targets": ["re:.*mlp.experts.*"]},
    )
    found = read_quantization({"quantization_config": config})
    assert found is not None
    assert found.bits_of(EXPERTS, 16) == 4.5 and found.bits_of(ATTENTION, 16) == 8


def test_what_is_left_alone_counts_by_layer_and_projection() -> None:
    """Dynamic 4-bit checkpoints keep a layer here and a projection there."""
    skipped = ["lm_head", "model.layers.0.self_attn", "model.layers.1.mlp.down_proj", "model.layers.2.mlp"]
    config = {"quant_method": "bitsandbytes", "load_in_4bit": True, "llm_int8_skip_modules": skipped}
    found = read_quantization({"quantization_config": config, "num_hidden_layers": 4})
    assert found is not None
    own = found.weight_bits
    assert found.bits_of(ATTENTION, 16) == pytest.approx(0.25 * 16 + 0.75 * own)
    assert found.bits_of(MLP, 16) == pytest.approx((16 * 4 / 3 + own * (4 - 4 / 3)) / 4)
    everywhere = {"quant_method": "fp8", "ignored_layers": [f"model.layers.{i}.self_attn" for i in range(4)]}
    kept = read_quantization({"quantization_config": everywhere, "num_hidden_layers": 4})
    assert kept is not None and ATTENTION in kept.kept


def test_a_name_alone_leaves_alone_what_makers_do() -> None:
    latent = {
        "architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 512, "num_hidden_layers": 2, "vocab_size": 1024,
        "num_attention_heads": 8, "intermediate_size": 1024, "kv_lora_rank": 64, "qk_nope_head_dim": 32,
        "qk_rope_head_dim": 16, "v_head_dim": 32,
    }  # fmt: skip
    asked = usual(quantization("nvfp4"), read_architecture(latent))
    assert asked is not None and ATTENTION in asked.kept
    asked = usual(quantization("fp8"), read_architecture(latent))
    assert asked is not None and ATTENTION not in asked.kept
