"""Built-in models by name, and weights by the end of a name."""

from __future__ import annotations

import pytest

from kilocard.cli.model_source import builtin_models
from kilocard.core.errors import UsageError
from kilocard.perf.catalogue import find
from kilocard.perf.read_config import read_architecture

MODELS = builtin_models()


@pytest.mark.parametrize(
    ("name", "entry", "method", "bits"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct", None, 16),
        ("llama-3.1-8b-instruct", "meta-llama/Llama-3.1-8B-Instruct", None, 16),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w8a8", "meta-llama/Llama-3.1-8B-Instruct", "int8", 8),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16", "meta-llama/Llama-3.1-8B-Instruct", "int4", 4.125),
        ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "meta-llama/Llama-3.3-70B-Instruct", "fp8", 8),
        ("Qwen/Qwen2.5-72B-Instruct-AWQ", "Qwen/Qwen2.5-72B-Instruct", "int4", 4.15625),
        ("Qwen/Qwen2.5-32B-Instruct-GPTQ-Int4", "Qwen/Qwen2.5-32B-Instruct", "int4", 4.15625),
        ("unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit", "meta-llama/Llama-3.1-8B-Instruct", "bitsandbytes", 4.1328125),
        ("microsoft/phi-4 (4-bit)", "microsoft/phi-4", "int4", 4.125),
        ("Qwen2.5-7B-Instruct-Q4_K_M", "Qwen/Qwen2.5-7B-Instruct", "gguf", 4.85),
        ("nvidia/Llama-3.3-70B-Instruct-FP4", "meta-llama/Llama-3.3-70B-Instruct", "nvfp4", 4.5),
        ("Qwen/Qwen3-32B-FP8", "Qwen/Qwen3-32B-FP8", "fp8", 8.001953125),
        ("deepseek-ai/DeepSeek-R1-0528", "deepseek-ai/DeepSeek-R1", "fp8", 8.001953125),
        ("openai/gpt-oss-20b", "openai/gpt-oss-20b", "mxfp4", 4.25),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mistralai/Mixtral-8x7B-v0.1", None, 16),
    ],
)
def test_names(name: str, entry: str, method: str | None, bits: float) -> None:
    found = find(name, MODELS)
    quantization = found.architecture.quantization
    assert found.entry == entry
    assert (quantization.method if quantization else None) == method
    assert (quantization.weight_bits if quantization else 16) == pytest.approx(bits)


def test_a_wrong_name_is_told_near_ones() -> None:
    with pytest.raises(UsageError, match=r"Qwen2\.5-7B-Instruct.*config\.json"):
        find("Qwen2.5-7B-Instrct", MODELS)


def test_every_entry_is_a_model_and_says_where_it_is_from() -> None:
    for name, config in MODELS.items():
        assert read_architecture(config, name=name).layers > 0
        assert config["source"], name


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", 7.616), ("Qwen/Qwen3-30B-A3B", 30.53), ("deepseek-ai/DeepSeek-V3", 671.0),
        ("google/gemma-2-27b-it", 27.23), ("meta-llama/Llama-4-Maverick-17B-128E-Instruct", 401.6),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 31.6), ("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8", 120.6),
        ("openai/gpt-oss-120b", 116.8), ("zai-org/GLM-4.5-Air", 106.9), ("microsoft/phi-4", 14.66),
        ("ibm-granite/granite-3.1-8b-instruct", 8.17), ("facebook/opt-13b", 12.85),
    ],
)  # fmt: skip
def test_parameters_are_those_that_the_makers_state(name: str, billions: float) -> None:
    assert find(name, MODELS).architecture.parameters / 1e9 == pytest.approx(billions, rel=0.005)
