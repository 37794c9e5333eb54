"""vLLM's second model runner: whose it is, and the account that it leaves, against public start-up logs."""

from __future__ import annotations

import pytest

from kilocard.cli.model_source import model_source
from kilocard.perf import model_runner
from kilocard.perf.gpus import gpu
from kilocard.perf.layout import Layout
from kilocard.perf.memory import Memory, memory
from kilocard.perf.setting import EngineSetting

LLAMA_8B, QWEN3_14B, HYBRID_27B = "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-14B", "Qwen/Qwen3.6-27B"


def plan(model: str, card: str, tensor: int = 1, pipeline: int = 1, **setting: object) -> Memory:
    asked = EngineSetting(**setting)  # type: ignore[arg-type]  # the test names fields that there are
    return memory(model_source(model).architecture, gpu(card), Layout(tensor, pipeline), asked)


@pytest.mark.parametrize(
    ("model", "version", "second"),
    [
        # an A40 with 0.26 and a 4090 with 0.27 say "model_runner.py", a card with 0.24 "gpu_model_runner.py"
        (LLAMA_8B, (0, 26), True),
        ("Qwen/Qwen2.5-0.5B-Instruct", (0, 27), True),
        ("Qwen/Qwen2.5-7B-Instruct", (0, 24), False),
        # families that were first, unquantised until 0.24
        ("Qwen/Qwen3-8B", (0, 22), True),
        ("Qwen/Qwen3-8B-AWQ", (0, 22), False),
        ("Qwen/Qwen3-8B-AWQ", (0, 24), True),
        ("Qwen/Qwen3-8B", (0, 21), False),
        # hybrid models and mixtures waited for 0.29
        (HYBRID_27B, (0, 28), False),
        (HYBRID_27B, (0, 29), True),
        ("Qwen/Qwen3-235B-A22B", (0, 27), False),
        ("deepseek-ai/DeepSeek-V2-Lite", (0, 24), True),
        ("openai/gpt-oss-120b", (0, 32), True),
    ],
)
def test_whose_it_is(model: str, version: tuple[int, int], second: bool) -> None:
    assert model_runner.second(version, model_source(model).architecture) is second


def test_it_sorts_no_logits_and_keeps_counts_instead() -> None:
    """On an A100 a step's 2,048 tokens make the peak then: 0.23 GiB where the sampler took 0.5 (0.24)."""
    before, after = (plan(LLAMA_8B, "A100", version=version, max_model_len=8192) for version in ("0.21", "0.31"))
    assert before.activation_gib == pytest.approx(0.52, abs=0.03)
    assert after.activation_gib == pytest.approx(0.23, abs=0.01)
    kept = {share.name: share.gib for share in after.stages[0].shares}["sampler state"]
    assert kept == pytest.approx(4.125 * 128256 * 256 / 2**30)


def test_stages_before_the_last_keep_no_counts() -> None:
    first, last = plan(LLAMA_8B, "A100", pipeline=2, version="0.31", max_model_len=8192).stages
    assert "sampler state" not in {share.name for share in first.shares}
    assert "sampler state" in {share.name for share in last.shares}


@pytest.mark.parametrize(
    ("model", "card", "asked", "kv_gib"),
    [
        # logs of 0.28 on an L40S (code index file 60168338778), of 0.31 on an A100 (70231782181), 0.26 on an A40
        # (59292590441), 0.27 on a 4090 under WSL (61918553602): the lines that a first runner would miss by a GiB
        (QWEN3_14B, "L40S", {"version": "0.28.0"}, 11.57),
        (f"{QWEN3_14B}-AWQ", "L40S", {"version": "0.28.0"}, 29.63),
        (LLAMA_8B, "A100", {"version": "0.31", "utilization": 0.92}, 56.21),
        (LLAMA_8B, "A40", {"version": "0.26.0", "utilization": 0.9, "max_model_len": 4096, "max_num_seqs": 256}, 23.9),
        (
            "Qwen/Qwen2.5-0.5B-Instruct",
            "RTX4090",
            {"version": "0.27", "utilization": 0.85, "max_model_len": 2048, "gpu_memory_gib": 23.99},
            18.65,
        ),
    ],
)
def test_what_is_left_is_what_the_logs_say(model: str, card: str, asked: dict[str, object], kv_gib: float) -> None:
    assert plan(model, card, **asked).kv_gib_per_gpu == pytest.approx(kv_gib, abs=0.2)


def test_graphs_are_set_aside_by_the_size_of_a_step() -> None:
    """With 8 sequences few graphs are captured, and a GPU of two holds half of a layer's intermediates."""
    usual, few, cut = (
        plan(QWEN3_14B, "L40S", version="0.28", max_model_len=4096, utilization=0.95, max_num_seqs=sequences, tensor=n)
        for sequences, n in ((256, 1), (8, 1), (256, 2))
    )
    assert usual.cuda_graph_gib == pytest.approx(1.2, abs=0.15)
    assert few.cuda_graph_gib < 0.4
    assert few.cuda_graph_gib < cut.cuda_graph_gib < 0.75 * usual.cuda_graph_gib


def test_the_first_runner_sets_half_a_gib_aside() -> None:
    """0.48, 0.53 and 0.63 GiB for Qwen2.5-7B on three cards with 0.22 to 0.24."""
    found = plan("Qwen/Qwen2.5-7B-Instruct", "RTX4090", version="0.24", max_model_len=2048, utilization=0.85)
    assert found.cuda_graph_gib == pytest.approx(0.55, abs=0.08)
    assert (
        plan(
            "Qwen/Qwen2.5-7B-Instruct",
            "RTX4090",
            version="0.24",
            max_model_len=2048,
            utilization=0.85,
            enforce_eager=True,
        ).cuda_graph_gib
        == 0
    )
