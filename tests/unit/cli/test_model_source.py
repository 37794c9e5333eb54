"""MODEL on a command line: a file, a folder with weights, a built-in name."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kilocard.cli.model_source import model_source
from kilocard.core.errors import SpecError, UsageError
from kilocard.perf.gpus import gpu
from kilocard.perf.layout import Layout
from kilocard.perf.memory import memory
from kilocard.perf.setting import EngineSetting

SMALL: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 1024, "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
}  # fmt: skip


def safetensors(path: Path, tensors: dict[str, int]) -> None:
    """Headers as in a real file; the data are left out, since nobody reads them."""
    header, end = {}, 0
    for name, size in tensors.items():
        header[name] = {"dtype": "BF16", "shape": [size // 2], "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header | {"__metadata__": {"format": "pt"}}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text)


def test_a_config_file(tmp_path: Path) -> None:
    path = tmp_path / "tiny" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps(SMALL))
    source = model_source(str(path))
    assert source.architecture.name == "tiny"
    assert source.told == str(path)


def test_a_folder_gives_the_exact_bytes_of_its_weights(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SMALL))
    whole = model_source(str(tmp_path)).architecture.parameters * 2
    safetensors(tmp_path / "a.safetensors", {"model.layers.0.mlp.up_proj.weight": whole})
    safetensors(
        tmp_path / "b.safetensors", {"lm_head.weight": 5_000, "model.layers.2.draft.weight": 10**6, "mtp.x": 10**6}
    )
    source = model_source(str(tmp_path))
    assert source.architecture.stored_bytes == whole + 5_000
    assert "2 safetensors files" in source.told
    found = memory(source.architecture, gpu("L4"), Layout(), EngineSetting())
    tables = 2048 * 16 * 2
    assert found.stages[0].weights.bytes_per_gpu == pytest.approx(whole + 5_000 + tables, abs=16)


def test_a_built_in_name() -> None:
    assert "built-in shape Qwen/Qwen3-8B" in model_source("qwen3-8b").told


@pytest.mark.parametrize("text", ["./nowhere", "/nowhere/config.json", "some.json"])
def test_a_path_that_is_not_there(text: str) -> None:
    with pytest.raises(UsageError, match="no file or folder"):
        model_source(text)


def test_a_folder_without_a_config(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no config\.json"):
        model_source(str(tmp_path))


@pytest.mark.parametrize("content", [b"not json", b"[1]", b"\xff\xfe"])
def test_a_config_that_is_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(SpecError):
        model_source(str(path))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=50)
@given(content=st.binary(max_size=200))
def test_any_bytes_as_weights_are_read_or_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SMALL))
    (tmp_path / "x.safetensors").write_bytes(content)
    try:
        model_source(str(tmp_path))
    except SpecError as error:
        assert "x.safetensors" in str(error)
