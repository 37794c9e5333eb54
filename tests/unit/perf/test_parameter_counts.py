"""Parameters of models against what transformers builds, and what is said of classes that nobody compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kilocard.cli.model_source import builtin_models
from kilocard.core.errors import SpecError
from kilocard.perf.families import doubt
from kilocard.perf.layers import Attention, Linear
from kilocard.perf.read_config import read_architecture

COUNTED = json.loads((Path(__file__).parents[2] / "data" / "parameters-transformers.json").read_text())
CLASSES: list[dict[str, Any]] = COUNTED["classes"]
MODELS: dict[str, int] = COUNTED["models"]

PLAIN: dict[str, Any] = {
    "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 8192,
}  # fmt: skip


@pytest.mark.parametrize("counted", CLASSES, ids=lambda each: each["config"]["architectures"][0])
def test_classes_that_vllm_serves_are_counted_like_transformers_counts_them(counted: dict[str, Any]) -> None:
    found = read_architecture(counted["config"])
    assert found.parameters == pytest.approx(counted["parameters"], rel=0.004)
    assert not any("not a class that is known" in each for each in found.assumptions)


def test_built_in_models_are_counted_like_transformers_counts_them() -> None:
    built_in = builtin_models()
    assert len(MODELS) > 150
    for name, parameters in MODELS.items():
        found = read_architecture(built_in[name], name=name)
        assert found.parameters - found.tower_parameters == pytest.approx(parameters, rel=0.001), name


def test_every_built_in_model_is_of_a_known_class() -> None:
    assert {entry["architecture"] for entry in builtin_models().values() if doubt(entry["architecture"])} == set()


def test_an_unknown_class_is_read_as_a_plain_transformer_and_says_so() -> None:
    found = read_architecture(PLAIN | {"architectures": ["FooBarForCausalLM"]})
    assert found.parameters == pytest.approx(8.03e9, rel=0.001)
    assert "FooBarForCausalLM is not a class that is known here" in found.assumptions[0]
    assert read_architecture(PLAIN | {"architectures": ["LlamaForCausalLM"]}).assumptions == ()


def test_a_config_without_a_class_is_known_by_its_type() -> None:
    found = read_architecture(PLAIN | {"model_type": "qwen2"})
    mixer = found.layer_groups[0].mixer
    assert found.family == "Qwen2ForCausalLM" and isinstance(mixer, Attention) and mixer.bias
    assert found.assumptions == ()


def test_an_unknown_kind_of_layer_is_refused() -> None:
    with pytest.raises(SpecError, match="layer_types: hyena is no kind of layer"):
        read_architecture(PLAIN | {"architectures": ["LlamaForCausalLM"], "layer_types": ["hyena"] * 32})


def test_a_text_model_has_no_tower_though_its_family_has() -> None:
    shape = PLAIN | {"linear_num_value_heads": 32, "linear_num_key_heads": 16, "linear_key_head_dim": 128,
                     "linear_value_head_dim": 128}  # fmt: skip
    assert not read_architecture(shape | {"architectures": ["Qwen3_5ForCausalLM"]}).vision
    assert read_architecture(shape | {"architectures": ["Qwen3_5ForConditionalGeneration"]}).vision


def test_the_whole_model_s_word_on_tied_embeddings_goes_before_its_text_model_s() -> None:
    text = PLAIN | {"tie_word_embeddings": True}
    config = {"architectures": ["Qwen3VLForConditionalGeneration"], "tie_word_embeddings": False, "text_config": text}
    assert not read_architecture(config).tied
    assert read_architecture(config | {"tie_word_embeddings": None}).tied


def test_what_is_special_about_a_layer_may_stand_under_its_number() -> None:
    config = PLAIN | {
        "architectures": ["Gemma4ForCausalLM"], "head_dim": 256, "sliding_window": 512, "num_hidden_layers": 6,
        "layer_types": ["sliding_attention"] * 5 + ["full_attention"], "per_layer_config": {"05": {"head_dim": 512}},
    }  # fmt: skip
    window, full = read_architecture(config).layer_groups
    assert isinstance(window.mixer, Attention) and window.mixer.head_dim == 256
    assert isinstance(full.mixer, Attention) and full.mixer.head_dim == full.mixer.value_dim == 512


def test_minimax_01_has_softmax_attention_in_every_eighth_layer() -> None:
    config = PLAIN | {"architectures": ["MiniMaxText01ForCausalLM"], "attn_type_list": ([0] * 7 + [1]) * 4}
    groups = read_architecture(config).layer_groups
    assert [(group.kind, group.layers) for group in groups] == [("linear", 28), ("full", 4)]
    assert isinstance(groups[0].mixer, Linear) and groups[0].mixer.conv_kernel == 1
    with pytest.raises(SpecError, match="attn_type_list is missing"):
        read_architecture(PLAIN | {"architectures": ["MiniMaxText01ForCausalLM"]})


def test_widths_of_feed_forward_networks_may_differ_from_layer_to_layer() -> None:
    config = PLAIN | {"architectures": ["Gemma3nForCausalLM"], "intermediate_size": [8192] * 16 + [16384] * 16}
    assert read_architecture(config).intermediate == 16384
    with pytest.raises(SpecError, match="intermediate_size: 32 whole numbers were expected"):
        read_architecture(config | {"intermediate_size": [8192, 16384]})
