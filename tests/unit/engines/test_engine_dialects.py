"""The names that engines really write."""

from __future__ import annotations

from pathlib import Path

import pytest

from kilocard.core.load import LoadSample
from kilocard.engines.registry import engine
from kilocard.metrics.fast import extract
from kilocard.metrics.load import says_nothing
from kilocard.spec.model import PoolSpec

FIXTURES = Path(__file__).parents[2] / "fixtures" / "metrics"


def read(name: str, page: str, which: int = 0) -> LoadSample:
    return extract(page.encode(), engine(name).metrics_pages(PoolSpec("p", name))[which].dialect, 0.0)


@pytest.mark.parametrize("name", ["vllm", "emulated", "external"])
def test_vllm_now(name: str) -> None:
    assert read(name, (FIXTURES / "vllm_0.32_busy.txt").read_text()) == LoadSample(
        at=0.0, running=8.0, waiting=24.0, kv_usage=0.02203856749311295, preemptions_total=0.0,
        prompt_tokens_total=13568.0, generation_tokens_total=13073.0, prefix_queries_total=13568.0,
        prefix_hits_total=0.0, kv_tokens=46592.0,
    )  # fmt: skip


def test_vllm_before_0_9_2() -> None:
    page = """# V1, early
vllm:num_requests_running{model_name="m"} 2.0
vllm:gpu_cache_usage_perc{model_name="m"} 0.5
vllm:gpu_prefix_cache_queries{model_name="m"} 100.0
vllm:gpu_prefix_cache_hits_total{model_name="m"} 40.0
"""
    sample = read("vllm", page)
    assert (sample.kv_usage, sample.prefix_queries_total, sample.prefix_hits_total) == (0.5, 100.0, 40.0)


def test_sglang() -> None:
    sample = read("sglang", (FIXTURES / "sglang_overloaded.txt").read_text())
    assert (sample.running, sample.waiting, sample.kv_usage) == (162.0, 2826.0, 0.28)
    assert (sample.prompt_tokens_total, sample.generation_tokens_total) == (8128902.0, 7557572.0)


def test_trtllm_names_with_and_without_prefix() -> None:
    bare = (
        '# from 1.0\nnum_requests_running{model_name="undefined"} 3.0\nnum_requests_waiting{model_name="undefined"} 1\n'
    )
    assert read("trtllm", bare).running == 3.0
    assert read("trtllm", bare.replace("\nnum", "\ntrtllm_num")).waiting == 1.0
    for which, page in enumerate(engine("external").metrics_pages(PoolSpec("p", "external"))):
        assert says_nothing(read("external", bare, which)), f"{page.path}: bare names could be anyone's"


def test_llamacpp() -> None:
    page = """# llama-server --metrics
llamacpp:prompt_tokens_total 1523
llamacpp:tokens_predicted_total 77
llamacpp:requests_processing 2
llamacpp:requests_deferred 1
"""
    assert read("llamacpp", page) == LoadSample(
        0.0, running=2.0, waiting=1.0, prompt_tokens_total=1523.0, generation_tokens_total=77.0
    )


def test_unknown_engines_are_tried_in_order() -> None:
    pages = engine("external").metrics_pages(PoolSpec("p", "external"))
    assert [page.path for page in pages] == ["/metrics", "/metrics", "/prometheus/metrics", "/metrics"]
    assert [page.dialect.running[0].partition("_")[0] for page in pages] == [
        "vllm:num", "sglang:num", "trtllm", "llamacpp:requests"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "args"), [("vllm", {"disable-log-stats": True}), ("sglang", {"enable-metrics": False}), ("ollama", {})]
)
def test_no_page_where_there_is_none(name: str, args: dict[str, bool]) -> None:
    assert engine(name).metrics_pages(PoolSpec("p", name, args=args)) == ()
