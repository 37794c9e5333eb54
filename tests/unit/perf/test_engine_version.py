"""Engine versions without a number."""

from __future__ import annotations

import pytest

from kilocard.core.errors import UsageError
from kilocard.perf.engine_defaults import NEWEST, parse_version
from kilocard.perf.gpus import gpu
from kilocard.perf.read_config import read_architecture
from kilocard.perf.setting import EngineSetting, resolve

CONFIG = {
    "architectures": ["Qwen2ForCausalLM"], "num_hidden_layers": 28, "hidden_size": 3584, "num_attention_heads": 28,
    "num_key_value_heads": 4, "intermediate_size": 18944, "vocab_size": 152064, "max_position_embeddings": 32768,
    "torch_dtype": "bfloat16",
}  # fmt: skip


@pytest.mark.parametrize("text", ["latest", "main", "nightly", "nightly-5b8c30d62b754b57", "Nightly-dev", "dev"])
def test_a_nightly_is_the_newest_that_is_known(text: str) -> None:
    assert parse_version(text) == NEWEST
    assumed = dict(resolve(EngineSetting(version=text), read_architecture(CONFIG), gpu("H100-80GB")).assumed)
    assert text in assumed["engine version"] and "newest" in assumed["engine version"]


def test_a_number_in_a_nightly_counts() -> None:
    assert parse_version("nightly-0.19.1.dev3") == (0, 19)


@pytest.mark.parametrize("text", ["gpt-oss", "mainly", "newest?"])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="write it as"):
        parse_version(text)


@pytest.mark.parametrize(("name", "cache"), [("nvfp4", "fp8"), ("modelopt_fp4", "fp8"), ("fp8", "auto")])
def test_nvfp4_by_name_has_an_fp8_cache(name: str, cache: str) -> None:
    """NVIDIA's NVFP4 checkpoints ask for it, and vLLM listens since 0.12."""
    newest = EngineSetting(version="0.19", quantization=name)
    resolved = resolve(newest, read_architecture(CONFIG), gpu("B200"))
    assert (resolved.kv_bytes == 1) == (cache == "fp8")
    older = EngineSetting(version="0.11", quantization=name)
    assert resolve(older, read_architecture(CONFIG), gpu("B200")).kv_bytes == 2
