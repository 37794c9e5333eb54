"""Any config.json gives a right answer or a refusal that names the key: no traceback, no kind of layer passed over."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilocard.cli.model_source import builtin_models, model_source
from kilocard.core.errors import KilocardError, SpecError
from kilocard.perf.gpus import gpu
from kilocard.perf.layers import Dense
from kilocard.perf.layout import Layout
from kilocard.perf.memory import memory
from kilocard.perf.read_config import read_architecture
from kilocard.perf.setting import EngineSetting

PLAIN: dict[str, Any] = {
    "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 8192,
}  # fmt: skip
SHAPES = list(builtin_models().values())
JUNK: list[Any] = [
    None, 0, -1, 1, 2.5, 1e30, float("inf"), float("nan"), "", "x", "8", True, [], {}, [1], [None], {"a": 1},
    ["full_attention"], [[1]], {"x": {}}, 2**70, [0, 1], {"1": 3},
]  # fmt: skip


def keys(value: Any, above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(value, dict):
        return []
    return [path for key, inner in value.items() for path in [(*above, key), *keys(inner, (*above, key))]]


def spoiled(shape: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    config = copy.deepcopy(shape)
    for _ in range(rng.choice((1, 1, 2, 3))):
        *above, last = rng.choice(keys(config))
        place = config
        for key in above:
            place = place[key]
        if rng.random() < 0.3:
            place.pop(last)
        else:
            place[last] = copy.deepcopy(rng.choice(JUNK))
    return config


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32))
def test_a_spoiled_config_is_planned_or_refused(seed: int) -> None:
    rng = random.Random(seed)
    config = spoiled(dict(rng.choice(SHAPES)), rng)
    try:
        architecture = read_architecture(config)
    except SpecError as error:
        assert str(error)
        return
    try:
        memory(architecture, gpu("H100"), Layout(rng.choice((1, 2, 8)), rng.choice((1, 1, 3))), EngineSetting())
    except KilocardError:
        return


@pytest.mark.parametrize(
    ("changed", "key"),
    [
        ({"num_hidden_layers": 1e30}, "num_hidden_layers"),
        ({"num_hidden_layers": 10**6}, "num_hidden_layers: 1,000,000 layers"),
        ({"hidden_size": float("nan")}, "hidden_size"),
        ({"layer_type_counts": {"full_attention": "many"}}, "layer_type_counts.full_attention"),
        ({"layer_type_counts": {"full_attention": 10**9}}, "layer_type_counts"),
        ({"quantization_config": {"quant_method": "awq", "bits": "x"}}, "quantization_config.bits"),
        ({"quantization_config": {"quant_method": "gptq", "group_size": [128]}}, "quantization_config.group_size"),
        (
            {"quantization_config": {"quant_method": "compressed-tensors", "config_groups": {"0": {"weights": 4}}}},
            "config_groups",
        ),
        ({"kv_lora_rank": 512, "linear_attn_config": {"kda_layers": ["1"]}}, "linear_attn_config.kda_layers"),
    ],
)
def test_a_refusal_names_the_key(changed: dict[str, Any], key: str) -> None:
    with pytest.raises(SpecError, match=key):
        read_architecture(PLAIN | {"architectures": ["LlamaForCausalLM"]} | changed)


@pytest.mark.parametrize(
    ("family", "key"),
    [
        ("BailingMoeV2_5ForCausalLM", "layer_group_size"),
        ("Step3TextForCausalLM", "share_q_dim"),
        ("IQuestLoopCoderForCausalLM", "loop_num"),
        ("Plamo3ForCausalLM", "interleaved_sliding_window"),
        ("SomeoneSSMForCausalLM", "ssm_state_size"),
    ],
)
def test_an_unknown_class_with_layers_of_its_own_kind_is_no_plain_transformer(family: str, key: str) -> None:
    """As a plain one it would hold a cache in every layer: a wrong answer where nobody would look."""
    with pytest.raises(SpecError, match=f"{family}: {key}: layers of a kind that is not modelled"):
        read_architecture(PLAIN | {"architectures": [family], key: 4})
    plain = read_architecture(PLAIN | {"architectures": [family]})
    assert "is not a class that is known here" in plain.assumptions[0]


def test_a_known_language_model_in_an_unknown_wrapper_is_read_as_its_own_class() -> None:
    """SmolVLM, InternS1 and the like: the inner model_type says what layers there are."""
    wrapped = {
        "architectures": ["InternS1ForConditionalGeneration"],
        "text_config": PLAIN | {"model_type": "qwen2"},
        "vision_config": {"hidden_size": 1024, "num_hidden_layers": 24, "intermediate_size": 4096, "patch_size": 14},
    }
    found = read_architecture(wrapped)
    alone = read_architecture(PLAIN | {"architectures": ["Qwen2ForCausalLM"]})
    assert found.layer_groups == alone.layer_groups
    assert found.vision
    assert found.assumptions[0].startswith(
        "InternS1ForConditionalGeneration is not a class that is known here: its lan"
    )


def test_the_small_gemma_4_double_the_networks_that_share_a_cache() -> None:
    """Gemma 4 E2B: 20 of 35 layers; the text model loads 8.89 GiB in a log (code index file 55764159779)."""
    found = model_source("google/gemma-4-E2B-it").architecture
    widths = [block.ffn.intermediate for block in found.blocks if isinstance(block.ffn, Dense)]
    assert widths == [6144] * 15 + [12288] * 20
    text_only = memory(found, gpu("L4"), Layout(), EngineSetting(version="0.25", images=0, max_model_len=8192))
    assert text_only.weights_gib_per_gpu == pytest.approx(8.89, rel=0.025)


def test_a_file_that_is_no_config_is_refused(tmp_path: Path) -> None:
    for text in ("", "[]", '{"a": ', "\x00", json.dumps({"architectures": 3})):
        path = tmp_path / "config.json"
        path.write_text(text)
        with pytest.raises(SpecError):
            model_source(str(path))


def test_what_a_saved_text_config_leaves_out_is_its_class_s_default() -> None:
    """transformers writes only what differs: the text part of a 9B Qwen3.5 then names nothing but its layers."""
    layers = (["linear_attention"] * 3 + ["full_attention"]) * 8
    saved = {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "model_type": "qwen3_5",
        "text_config": {"model_type": "qwen3_5_text", "layer_types": layers},
        "vision_config": {
            "model_type": "qwen3_5_vision", "depth": 27, "hidden_size": 1152, "intermediate_size": 4304,
            "num_heads": 16, "num_position_embeddings": 2304, "patch_size": 16, "spatial_merge_size": 2,
            "temporal_patch_size": 2, "out_hidden_size": 4096,
        },
    }  # fmt: skip
    stated = model_source("Qwen/Qwen3.5-9B").architecture
    found = read_architecture(saved)
    assert (found.parameters, found.layer_groups) == (stated.parameters, stated.layer_groups)


def test_gptq_s_dynamic_rules_leave_parts_alone() -> None:
    """As in the makers' own GPTQ checkpoints of Qwen3-Next and Qwen3.5."""
    rules = {"-:.*attn.*": {}, "-:.*shared_expert.*": {}, "-:.*visual.*": {}, "lm_head": {}, "+:.*down.*": {"bits": 8}}
    config = PLAIN | {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": rules}}
    kept = read_architecture(config | {"architectures": ["LlamaForCausalLM"]}).quantization
    assert kept is not None
    assert {"attention", "linear_attention", "shared_experts", "tower"} <= kept.kept
    assert not {"mlp", "experts"} & kept.kept
