"""Shape facts that state a part are completed from the built-in shape that they are part of."""

from __future__ import annotations

from typing import Any

import pytest

from kilocard.cli.model_source import builtin_models
from kilocard.core.errors import SpecError
from kilocard.perf.read_config import read_architecture
from kilocard.perf.shape_entry import completed

NANO = "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"
MAMBA = ("mamba_num_heads", "mamba_head_dim", "ssm_state_size", "n_groups", "conv_kernel")


def without(name: str, *fields: str, **changed: Any) -> dict[str, Any]:
    return {key: value for key, value in builtin_models()[name].items() if key not in fields} | changed


def test_what_an_entry_leaves_out_comes_from_the_built_in_shape() -> None:
    entry = without(NANO, *MAMBA)
    with pytest.raises(SpecError, match="mamba_num_heads"):
        read_architecture(entry)
    whole = read_architecture(completed(entry, builtin_models()))
    assert whole.layer_groups == read_architecture(builtin_models()[NANO]).layer_groups


def test_a_tower_is_part_of_the_shape() -> None:
    entry = without("Qwen/Qwen3-VL-4B-Instruct", "tower_parameters")
    assert completed(entry, builtin_models())["tower_parameters"] == 410_000_000


def test_an_entry_that_says_otherwise_is_left_as_it_is() -> None:
    entry = without(NANO, *MAMBA, moe_intermediate_size=999)
    assert completed(entry, builtin_models()) == entry


def test_a_config_of_hugging_face_s_is_left_as_it_is() -> None:
    config = {"architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "vocab_size": 128256}
    assert completed(config, builtin_models()) is config


def test_weights_come_only_from_the_same_checkpoint() -> None:
    """The 8-bit checkpoint of a model has its shape and not its weights."""
    name = "meta-llama/Meta-Llama-3.1-405B"
    assert "quantization" not in completed(without(name), builtin_models())
    moved = without("nvidia/DeepSeek-V3.1-NVFP4", "quantization", source="somewhere else")
    assert "quantization" not in completed(moved, builtin_models())
    assert completed(without("nvidia/DeepSeek-V3.1-NVFP4", "quantization"), builtin_models())["quantization"]
