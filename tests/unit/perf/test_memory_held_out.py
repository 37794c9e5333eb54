"""The memory model against start-up logs that were found after it was made."""

from __future__ import annotations

import statistics

from tests import memory_held_out as held_out
from tests.ground_truth_errors import Error


def within(errors: list[Error], limit: float) -> float:
    return sum(abs(error.relative) <= limit + error.rounding for error in errors) / len(errors)


def test_tokens_and_concurrency_follow_from_gib() -> None:
    """Dense, latent, mixed and recurrent models; windows; TP, PP and experts shared out; caches of 8 bits."""
    tokens, concurrency = held_out.tokens_from_gib(), held_out.concurrency_from_gib()
    assert len(tokens) >= 35 and len(concurrency) >= 33
    assert within(tokens, 0.001) >= 0.95
    assert within(tokens, 0.003) == 1
    assert within(concurrency, 0.003) == 1


def test_the_cache_follows_from_the_config() -> None:
    never, since = (held_out.kv_from_config(fitted=fitted) for fitted in (False, True))
    assert len(never) >= 8 and len(since) >= 11
    assert statistics.mean(abs(error.relative) for error in never) <= 0.03
    assert within(never, 0.06) == 1
    assert within(since, 0.02) == 1


def test_weights_follow_from_the_config() -> None:
    assert within(held_out.weights_from_config(), 0.02) >= 0.9
    assert within(held_out.weights_from_config(), 0.04) == 1


def test_a_row_says_whether_it_was_used() -> None:
    rows = held_out.rows()
    assert len(rows) == len({row["id"] for row in rows}) >= 39
    assert {row["fitted"] for row in rows} == {"", "graphs", "PCIe"}
    assert all(row["source"] for row in rows)


def test_caches_of_other_engines_take_the_same_bytes_a_token() -> None:
    """SGLang prints "#tokens" and GB, llama.cpp cells and MiB; neither pads what vLLM does not.

    Kimi-K2.5 on SGLang (code index file 1272019175), GLM-5 with an 8-bit sparse cache (56193900378), and llama.cpp's
    KV buffers (JamePeng/llama-cpp-python#1, SciSharp/LLamaSharp#1099).
    """
    stated = {
        "moonshotai/Kimi-K2.5": (160.63 * 2**30 / 2_454_421, "auto"),
        "zai-org/GLM-5": (7.51 * 2**30 / 131_072, "fp8"),
        "Qwen/Qwen2.5-7B-Instruct": (112 * 2**20 / 2048, "auto"),
        "Qwen/Qwen2.5-3B-Instruct": (144 * 2**20 / 4096, "auto"),
    }
    for model, (each, kv_dtype) in stated.items():
        row = dict.fromkeys(held_out.rows()[0], "") | {"model": model, "kv_dtype": kv_dtype, "max_model_len": "4096"}
        assert abs(held_out.predicted(row, kv_gib=30.0).kv_bytes_per_token / each - 1) <= 0.001, model
