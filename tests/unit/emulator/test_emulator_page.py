"""The metrics page is read by our own readers as a vLLM page is."""

from __future__ import annotations

import asyncio

import pytest

from kilocard.core.errors import UsageError
from kilocard.core.load import LoadSample
from kilocard.emulator.histogram import Histogram
from kilocard.emulator.page import metrics_page, padded
from kilocard.emulator.replica import Replica
from kilocard.emulator.settings import Settings
from kilocard.engines.vllm import DIALECT
from kilocard.metrics.exact import parse
from kilocard.metrics.load import sample_from


def page(settings: Settings) -> bytes:
    async def main() -> bytes:
        replica = Replica(settings)
        for i in range(3):
            replica.engine.add(str(i), 100, 5, 0.0)
        replica.engine.step(0.0)
        replica.observed.ttft.observe(0.05)
        return metrics_page(replica)

    return asyncio.run(main())


def test_a_reader_of_vllms_pages_understands_it() -> None:
    settings = Settings(models=('m "quoted"',), max_num_seqs=2, kv_tokens=16_000)
    sample = sample_from(parse(page(settings)).samples, DIALECT, at=1.0)
    assert sample == LoadSample(
        at=1.0,
        running=2.0,
        waiting=1.0,
        kv_usage=14 / 999,
        preemptions_total=0.0,
        prompt_tokens_total=200.0,
        generation_tokens_total=2.0,
        prefix_queries_total=200.0,
        prefix_hits_total=0.0,
        kv_tokens=16_000.0,
    )


def test_every_sample_has_help_and_type() -> None:
    text = page(Settings()).decode()
    typed = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    helped = {line.split()[2] for line in text.splitlines() if line.startswith("# HELP")}
    assert typed == helped
    for line in text.splitlines():
        if not line.startswith("#"):
            name = line.partition("{")[0]
            family = name.removesuffix("_bucket").removesuffix("_count").removesuffix("_sum")
            assert name in typed or family in typed, line


def test_padding_reaches_the_size_and_no_more_than_a_line_over() -> None:
    assert padded("x\n", 0) == "x\n"
    assert 51_000 <= len(page(Settings(metrics_bytes=51_000))) < 51_200


def test_buckets_are_cumulative() -> None:
    histogram = Histogram((1.0, 2.0))
    histogram.observe(1.0)
    histogram.observe(1.5, times=3)
    histogram.observe(9.0)
    assert list(histogram.buckets()) == [("1.0", 1), ("2.0", 4), ("+Inf", 5)]
    assert (histogram.count, histogram.sum) == (5, 14.5)


def test_settings_that_make_no_sense() -> None:
    for wrong in ({"speed": 0.0}, {"max_num_seqs": 0}, {"kv_tokens": 16}, {"models": ()}):
        with pytest.raises(UsageError):
            Settings(**wrong)  # type: ignore[arg-type]  # wrong on purpose


def test_the_context_never_exceeds_the_kv_cache() -> None:
    assert Settings(kv_tokens=1600, max_model_len=5000).context == 1584
