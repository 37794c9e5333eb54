"""Memory of a replica: the account adds up, and what can't run is refused with the reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilocard.core.errors import PlanError, UsageError
from kilocard.perf.architecture import Architecture
from kilocard.perf.engine_defaults import parse_version
from kilocard.perf.gpus import gpu
from kilocard.perf.layout import Layout
from kilocard.perf.memory import Memory, memory
from kilocard.perf.read_config import read_architecture
from kilocard.perf.setting import EngineSetting

LLAMA_8B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "tie_word_embeddings": False,
    "max_position_embeddings": 131072,
}  # fmt: skip
#: gpt-oss-120b
GPT_OSS: dict[str, Any] = {
    "architectures": ["GptOssForCausalLM"], "hidden_size": 2880, "num_hidden_layers": 36, "vocab_size": 201088,
    "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 2880,
    "sliding_window": 128, "num_local_experts": 128, "num_experts_per_tok": 4, "max_position_embeddings": 131072,
    "layer_types": ["sliding_attention", "full_attention"] * 18, "quantization_config": {"quant_method": "mxfp4"},
}  # fmt: skip
QWEN_14B = LLAMA_8B | {
    "architectures": ["Qwen2ForCausalLM"], "hidden_size": 5120, "num_hidden_layers": 48, "num_attention_heads": 40,
    "num_key_value_heads": 8, "intermediate_size": 13824, "vocab_size": 152064,
}  # fmt: skip
#: Gemma 4 31B: window layers and global ones differ in heads and head size
GEMMA_4: dict[str, Any] = {
    "architectures": ["Gemma4ForConditionalGeneration"], "hidden_size": 5376, "num_hidden_layers": 60,
    "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 256, "num_global_key_value_heads": 4,
    "global_head_dim": 512, "intermediate_size": 21504, "vocab_size": 262144, "sliding_window": 1024,
    "layer_type_counts": {"sliding_attention": 50, "full_attention": 10}, "max_position_embeddings": 262144,
}  # fmt: skip
H100 = gpu("H100")


def model(config: dict[str, Any]) -> Architecture:
    return read_architecture(config)


def plan(config: dict[str, Any], card: str = "H100", tensor: int = 1, pipeline: int = 1, **setting: Any) -> Memory:
    return memory(model(config), gpu(card), Layout(tensor, pipeline), EngineSetting(**setting))


def test_sz_01_the_activation_peak_follows_the_tokens_of_a_step() -> None:
    """Engine V0 takes the longest prompt in one step, until chunked prefill switches itself on above 32,768."""
    peaks = {}
    for length, kv_gib, blocks in ((20_000, 3.81, 1952), (29_000, 2.89, 1478)):
        asked = {"version": "0.6.4", "utilization": 0.9, "max_num_seqs": 1, "gpu_memory_gib": 23.58}
        if length == 29_000:
            with pytest.raises(PlanError, match=r"longest that fits is about 23,\d"):
                plan(LLAMA_8B, "RTX3090", max_model_len=length, **asked)
            continue
        found = plan(LLAMA_8B, "RTX3090", max_model_len=length, **asked)
        assert found.kv_gib_per_gpu == pytest.approx(kv_gib, rel=0.05)
        assert found.kv_blocks == pytest.approx(blocks, rel=0.05)
        peaks[length] = found.activation_gib
    chunked = plan(LLAMA_8B, "RTX3090", max_model_len=35_000, **asked)
    assert chunked.activation_gib < 0.1 < peaks[20_000]


def test_sz_03_window_layers_count_and_head_size_is_the_field() -> None:
    """5.38 GiB at 73,728 bytes a token are the 78,384 tokens of the log; a short request needs all 36 layers."""
    found = plan(GPT_OSS, version="0.11.0", kv_gib=5.38, max_model_len=4096)
    assert found.kv_tokens == pytest.approx(78_384, rel=0.001)
    per_token = found.kv_gib_per_gpu * 2**30 / found.kv_tokens
    assert per_token == pytest.approx(73_728, rel=0.001)
    # long requests hold only the window in half of the layers: twice as many tokens fit as the rate says
    long = plan(GPT_OSS, version="0.11.0", kv_gib=5.38, max_model_len=65_536)
    assert long.max_concurrency * 65_536 > 1.6 * long.kv_tokens
    worst = plan(GPT_OSS, version="0.11.0", kv_gib=5.38, max_model_len=65_536, hybrid_manager=False)
    assert worst.max_concurrency * 65_536 == pytest.approx(worst.kv_tokens, rel=0.001)


def test_sz_04_the_hybrid_manager_makes_a_ten_times_larger_cache() -> None:
    """Gemma 4 31B, 50 GiB: 55,000 tokens at 0.20, which gives window layers their whole context, 525,000 at 0.21."""
    before = plan(GEMMA_4, version="0.20.0", kv_gib=50, max_model_len=32_768)
    assert before.largest_max_model_len == pytest.approx(55_000, rel=0.01)
    after = plan(GEMMA_4, version="0.21.0", kv_gib=50, max_model_len=262_144)
    assert after.kv_tokens == pytest.approx(525_000, rel=0.1)
    assert any("hybrid KV cache manager" in warning for warning in before.warnings)
    assert any("assume the hybrid KV cache manager" in warning for warning in after.warnings)


@pytest.mark.parametrize(("kv_heads", "tensor", "ratio"), [(8, 1, 4.0), (8, 2, 4.0), (4, 8, 4.0), (1, 4, 8.0)])
def test_sz_06_kv_heads_are_the_grouped_ones_and_repeated_above_their_number(
    kv_heads: int, tensor: int, ratio: float
) -> None:
    grouped = plan(LLAMA_8B | {"num_key_value_heads": kv_heads}, tensor=tensor, kv_gib=10)
    every_head = plan(LLAMA_8B | {"num_key_value_heads": 32}, tensor=tensor, kv_gib=10)
    assert every_head.kv_bytes_per_token / grouped.kv_bytes_per_token == pytest.approx(ratio)


def test_sz_07_a_hybrid_cache_has_a_fixed_and_a_growing_part() -> None:
    """pool ÷ printed tokens varies with max_model_len; bytes per token and fixed bytes do not."""
    short, long = (plan(GEMMA_4, version="0.24.0", kv_gib=20, max_model_len=length) for length in (32_768, 131_072))
    assert short.kv_tokens < 0.7 * long.kv_tokens
    assert short.kv_bytes_per_token == long.kv_bytes_per_token
    assert short.kv_bytes_fixed == long.kv_bytes_fixed > 0


def test_sz_09_the_encoders_profile_takes_from_the_cache() -> None:
    vision = LLAMA_8B | {"tower_parameters": 600_000_000}
    one = plan(vision, version="0.8.3", image_tokens=768)
    twelve = plan(vision, version="0.8.3", images=12, image_tokens=16_384)
    assert twelve.activation_gib > one.activation_gib + 1
    assert any("--limit-mm-per-prompt" in warning for warning in plan(vision).warnings)


def test_sz_15_a_utilization_that_leaves_no_room_for_graphs_is_refused() -> None:
    card = {"gpu_memory_gib": 22.36, "max_model_len": 4096}
    with pytest.raises(PlanError, match=r"at most 0\.97") as caught:
        plan(LLAMA_8B, "A10", utilization=0.98, **card)
    assert caught.value.code == "utilization_too_high"
    found = plan(LLAMA_8B, "A10", utilization=0.97, **card)
    assert any("0.92" in warning for warning in found.warnings)


def test_sz_16_graphs_are_in_the_budget_from_0_21() -> None:
    before = plan(LLAMA_8B, "RTX4090", version="0.20.0", utilization=0.82, max_model_len=8192)
    after = plan(LLAMA_8B, "RTX4090", version="0.21.0", utilization=0.82, max_model_len=8192)
    assert after.graphs_in_budget and not before.graphs_in_budget
    assert before.kv_gib_per_gpu - after.kv_gib_per_gpu == pytest.approx(after.cuda_graph_gib)
    assert "CUDA graphs" in after.account()


def test_sz_18_per_gpu_and_total_are_apart_and_the_smallest_rank_decides() -> None:
    """14B on 2 × 23 GiB: 81,536 tokens of 98,304 bytes, not one request of 131,072."""
    with pytest.raises(PlanError, match=r"about 81,\d+ tokens.*kv-cache-dtype fp8\), more GPUs") as caught:
        plan(QWEN_14B, tensor=2, kv_gib=7.47, max_model_len=131_072)
    assert caught.value.code == "max_model_len_does_not_fit"
    found = plan(QWEN_14B, tensor=2, kv_gib=7.47, max_model_len=65_536)
    assert found.kv_tokens == pytest.approx(81_536, rel=0.001)
    assert found.kv_gib_total == pytest.approx(2 * found.kv_gib_per_gpu)


def test_sz_19_the_account_adds_up_as_printed() -> None:
    """Log of 0.6.4, 8B on two V100s: 7.51 + 0.39 + 2.53 + 3.76 = 14.19."""
    found = plan(
        LLAMA_8B, "V100-16GB", tensor=2, version="0.6.4", utilization=0.9, gpu_memory_gib=15.77, dtype="float16",
        max_num_seqs=1, max_num_batched_tokens=40_000, max_model_len=40_000,
    )  # fmt: skip
    assert found.weights_gib_per_gpu == pytest.approx(7.51, abs=0.01)
    assert found.activation_gib == pytest.approx(2.53, abs=0.03)
    pinned = plan(LLAMA_8B, tensor=2, kv_gib=3.76, max_model_len=40_000, version="0.6.4")
    assert pinned.kv_tokens == pytest.approx(61_632, rel=0.001)
    assert pinned.max_concurrency == pytest.approx(1.54, abs=0.005)


def _printed_sum(text: str) -> tuple[float, float]:
    head, terms = text.split(" = ")[1:]
    numbers = [float(word) for word in terms.replace(" GiB a GPU", "").split() if word.replace(".", "").isdigit()]
    return float(head), sum(numbers)


@given(
    utilization=st.floats(0.5, 0.97), tensor=st.sampled_from([1, 2, 4]), seqs=st.integers(1, 1024),
    version=st.sampled_from(["0.11.0", "0.19.0", "0.25.0", "0.32.0"]),
)  # fmt: skip
def test_every_account_adds_up(utilization: float, tensor: int, seqs: int, version: str) -> None:
    found = plan(
        LLAMA_8B, tensor=tensor, utilization=utilization, max_num_seqs=seqs, version=version, max_model_len=4096
    )
    budget, added = _printed_sum(found.account())
    assert added == pytest.approx(budget, abs=0.001)
    stage = found.stages[0]
    assert sum(share.gib for share in stage.shares) + stage.kv_gib == pytest.approx(stage.budget_gib)


@settings(max_examples=30)
@given(kv_gib=st.floats(0.5, 60))
def test_the_longest_that_fits_fits_and_one_more_does_not(kv_gib: float) -> None:
    for config in (LLAMA_8B, GPT_OSS, GEMMA_4):
        asked = EngineSetting(kv_gib=kv_gib, max_model_len=64)
        found = memory(model(config), H100, Layout(), asked)
        longest = found.largest_max_model_len
        assert memory(model(config), H100, Layout(), replace(asked, max_model_len=longest)).max_concurrency >= 1
        if longest < 131_072:
            with pytest.raises(PlanError):
                memory(model(config), H100, Layout(), replace(asked, max_model_len=longest + 4096))


@pytest.mark.parametrize(
    ("config", "tensor", "pipeline", "words"),
    [
        (LLAMA_8B, 3, 1, "32 attention heads"),
        (QWEN_14B | {"num_attention_heads": 40, "num_key_value_heads": 40}, 5, 1, "vocabulary of 152,064"),
        (LLAMA_8B | {"num_key_value_heads": 6, "num_attention_heads": 32}, 4, 1, "6 KV heads"),
        (LLAMA_8B, 1, 33, "32 layers"),
    ],
    ids=["heads", "vocabulary", "kv-heads", "layers"],
)
def test_what_cannot_be_divided_is_refused(config: dict[str, Any], tensor: int, pipeline: int, words: str) -> None:
    with pytest.raises(PlanError, match=words) as caught:
        plan(config, tensor=tensor, pipeline=pipeline)
    assert caught.value.code == "indivisible"


def test_blocks_of_scales_cannot_be_cut() -> None:
    """Qwen3-30B-A3B-FP8 over 8 GPUs: 96 columns of an expert each, in blocks of 128."""
    config = LLAMA_8B | {
        "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768,
        "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    }  # fmt: skip
    with pytest.raises(PlanError, match="expert parallel"):
        plan(config, tensor=8)
    assert memory(model(config), H100, Layout(8, expert=8), EngineSetting()).kv_tokens > 0


def test_no_room_for_the_cache_is_refused_with_the_sum() -> None:
    with pytest.raises(PlanError, match=r"no room for the KV cache: .* weights 14\.99") as caught:
        plan(LLAMA_8B, "RTX4060")
    assert caught.value.code == "no_room_for_kv"
    with pytest.raises(PlanError, match=r"KV cache -2\.1"):  # 2.14 missing in the log
        plan(GPT_OSS, version="0.15.0", utilization=0.9)


def test_two_gpus_hold_2_19_times_the_tokens_of_one_not_4_4() -> None:
    one, two = (plan(LLAMA_8B, tensor=n, version="0.19.0", utilization=0.95) for n in (1, 2))
    assert two.kv_tokens / one.kv_tokens == pytest.approx(1_044_688 / 476_016, rel=0.002)


def test_stages_differ_and_the_narrowest_counts() -> None:
    found = plan(LLAMA_8B, pipeline=2, version="0.19.0", utilization=0.95, max_model_len=8192)
    assert found.kv_gib_per_gpu == pytest.approx(66.54, abs=0.1)
    assert found.kv_tokens == pytest.approx(1_075_312, rel=0.001)
    assert found.stages[1].kv_gib < found.stages[0].kv_gib


def test_recurrent_layers_hold_two_states_a_request() -> None:
    """Qwen3.6-35B-A3B on 0.24: 5.98 GiB are 299 blocks of 2,096 tokens; the log says 567,978 tokens and 4.33x."""
    config = {
        "architectures": ["Qwen3_5MoeForConditionalGeneration"], "hidden_size": 2048, "num_hidden_layers": 40,
        "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "vocab_size": 248320,
        "moe_intermediate_size": 512, "num_experts": 256, "num_experts_per_tok": 8, "full_attention_interval": 4,
        "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "max_position_embeddings": 262144,
    }  # fmt: skip
    asked = {"kv_gib": 5.98, "kv_cache_dtype": "fp8", "max_model_len": 131_072}
    found = plan(config, version="0.24.0", prefix_caching=True, **asked)
    assert (found.kv_blocks, found.kv_tokens) == (299, 567_978)
    assert found.max_concurrency == pytest.approx(4.33, abs=0.01)


def test_a_latent_cache_is_not_divided() -> None:
    latent = LLAMA_8B | {
        "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128, "q_lora_rank": 1536,
    }  # fmt: skip
    one, four = (plan(latent, tensor=n, kv_gib=10) for n in (1, 4))
    assert one.kv_tokens == four.kv_tokens
    assert one.kv_bytes_per_token == 32 * 576 * 2


def test_an_eight_bit_cache_holds_twice_the_tokens() -> None:
    wide, narrow = (plan(LLAMA_8B, kv_cache_dtype=kind, kv_gib=20) for kind in ("auto", "fp8"))
    assert narrow.kv_tokens == pytest.approx(2 * wide.kv_tokens, rel=0.001)


@pytest.mark.parametrize(
    "wrong",
    [{"utilization": 1.2}, {"dtype": "int3"}, {"kv_cache_dtype": "fp3"}, {"version": "newest"}, {"max_num_seqs": -1}],
)
def test_settings_that_make_no_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        plan(LLAMA_8B, **wrong)


def test_what_nobody_said_is_listed() -> None:
    assumed = dict(plan(LLAMA_8B, version="0.19.0").assumed)
    assert assumed["gpu_memory_utilization"] == "0.9"
    assert assumed["max_num_seqs"] == "1024"
    assert dict(plan(LLAMA_8B, "A100-80GB", version="0.19.0").assumed)["max_num_seqs"] == "256"
    assert dict(plan(LLAMA_8B).assumed)["gpu_memory_utilization"] == "0.92"


def test_an_a100_of_80_gb_has_the_large_defaults_before_0_9() -> None:
    setting = EngineSetting(version="0.8.5", max_model_len=8192)
    assert memory(model(LLAMA_8B), gpu("A100-80GB"), Layout(), setting).resolved.max_num_seqs == 1024
    newer = memory(model(LLAMA_8B), gpu("A100-80GB"), Layout(), replace(setting, version="0.9.0"))
    assert (newer.resolved.max_num_seqs, newer.resolved.max_num_batched_tokens) == (256, 2048)


def test_a_length_beyond_the_model_s_is_answered_with_a_warning() -> None:
    found = memory(model(LLAMA_8B), gpu("H100-80GB"), Layout(), EngineSetting(max_model_len=200_000))
    assert any("the engine refuses it unless" in warning for warning in found.warnings)


def test_chunks_hold_the_whole_context_before_0_12() -> None:
    """Llama 4's hybrid cache was off by default from 0.10 to 0.11, because it was slower."""
    config = LLAMA_8B | {
        "architectures": ["Llama4ForCausalLM"], "num_local_experts": 2, "attention_chunk_size": 8192,
        "layer_types": (["chunked_attention"] * 3 + ["full_attention"]) * 8,
    }  # fmt: skip
    setting = EngineSetting(version="0.11.0", max_model_len=100_000, max_num_seqs=64)
    older = memory(model(config), gpu("H200-141GB"), Layout(), setting)
    newer = memory(model(config), gpu("H200-141GB"), Layout(), replace(setting, version="0.12.0"))
    assert len(older.stages[0].cache.groups) == 1 and len(newer.stages[0].cache.groups) == 4
    assert newer.max_concurrency > 2 * older.max_concurrency


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("v0.15.2rc", (0, 15)),
        ("July 2026", (0, 24)),
        ("2026-05-12", (0, 20)),
        ("nightly", (0, 32)),
        ("0.8.5.post1", (0, 8)),
    ],
)
def test_versions_are_read_as_logs_write_them(text: str, version: tuple[int, int]) -> None:
    assert parse_version(text) == version


QWEN_0_8B: dict[str, Any] = {
    "architectures": ["Qwen3_5ForConditionalGeneration"], "hidden_size": 1024, "num_hidden_layers": 24,
    "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256, "vocab_size": 248320,
    "intermediate_size": 3584, "full_attention_interval": 4, "linear_num_key_heads": 16, "linear_num_value_heads": 16,
    "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
    "tie_word_embeddings": True, "max_position_embeddings": 262144,
}  # fmt: skip


def test_a_hybrid_model_caches_prefixes_by_itself_since_0_28() -> None:
    """One state a request before that: 44.73x in a log of 0.23, where two states would give 35x (3.06 GiB, 4,096)."""
    before, asked, after = (
        plan(QWEN_0_8B, version=version, kv_gib=3.06, max_model_len=4096, prefix_caching=caching)
        for version, caching in (("0.23", None), ("0.23", True), ("0.28", None))
    )
    assert before.max_concurrency == pytest.approx(44.73, rel=0.005)
    assert asked.max_concurrency == after.max_concurrency == pytest.approx(35.07, rel=0.005)
    assert ("prefix caching", "off, as this version has it for a model with recurrent layers") in before.assumed


def test_before_0_20_a_hybrid_model_s_log_counts_the_blocks_of_one_group() -> None:
    """Qwen3.5-2B: 129,472 tokens and 1.97x at 262,144 in one log; 955 // 4 blocks of 544 tokens."""
    wide = QWEN_0_8B | {"hidden_size": 2048, "intermediate_size": 6144}
    found = plan(wide, version="0.19", kv_gib=5.95, max_model_len=262_144)
    assert (found.kv_blocks, found.kv_tokens) == (955, 129_472)
    assert found.max_concurrency == pytest.approx(1.97, abs=0.005)


def test_each_sequence_needs_a_block_for_its_state() -> None:
    """vLLM refuses more ("max_num_seqs (1024) exceeds available Mamba cache blocks"); its own default is lowered."""
    with pytest.raises(PlanError, match="max_num_seqs 4,096 is more than the") as refused:
        plan(QWEN_0_8B, version="0.19", max_num_seqs=4096, max_num_batched_tokens=8192, utilization=0.5)
    assert refused.value.code == "max_num_seqs_too_high"
    found = plan(QWEN_0_8B, version="0.19", utilization=0.12)
    assert found.resolved.max_num_seqs < 1024
    assert found.kv_blocks >= found.resolved.max_num_seqs
    assert any(name == "max_num_seqs" and "no room for its states" in told for name, told in found.assumed)
    eager = plan(QWEN_0_8B, version="0.19", utilization=0.12, enforce_eager=True)
    assert eager.resolved.max_num_seqs == 1024


def test_a_step_has_room_for_the_longest_video_of_gemma_4() -> None:
    """Gemma 4 26B on a 48 GB card, 0.25.1: 12.75 GiB are 321,600 tokens, 9.81x at 32,768; with 2,048 a step 10.5x."""
    gemma = GEMMA_4 | {
        "hidden_size": 2816, "num_hidden_layers": 30, "num_attention_heads": 16, "num_key_value_heads": 8,
        "num_global_key_value_heads": 2, "moe_intermediate_size": 704, "num_experts": 128, "intermediate_size": 2112,
        "layer_type_counts": {"sliding_attention": 25, "full_attention": 5}, "quantization": "fp8",
    }  # fmt: skip
    found = plan(gemma, "A6000", version="0.25.1", kv_gib=12.75, max_model_len=32_768)
    assert found.resolved.max_num_batched_tokens == 2496
    assert found.max_concurrency == pytest.approx(9.81, rel=0.001)
    text_only = plan(gemma, "A6000", version="0.25.1", kv_gib=12.75, max_model_len=32_768, images=0)
    assert text_only.resolved.max_num_batched_tokens == 2048


def test_text_only_leaves_the_tower_out() -> None:
    vision = LLAMA_8B | {"architectures": ["Mistral3ForConditionalGeneration"], "tower_parameters": 500_000_000}
    with_tower, without = (plan(vision, version="0.19", images=images) for images in (1, 0))
    assert with_tower.weights_gib_per_gpu - without.weights_gib_per_gpu == pytest.approx(1e9 / 2**30)
    assert plan(vision, version="0.11", images=0).weights_gib_per_gpu == with_tower.weights_gib_per_gpu
