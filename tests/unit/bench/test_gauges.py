"""Pages of real engines, as they are in tests/fixtures/metrics."""

from __future__ import annotations

from pathlib import Path

import pytest

from kilocard.bench.gauges import page_of, together
from kilocard.core.load import LoadSample
from kilocard.metrics import names
from kilocard.metrics.exposition_error import NotExposition
from kilocard.metrics.render import Registry

PAGES = Path(__file__).parents[2] / "fixtures" / "metrics"


def gateway_page() -> bytes:
    registry = Registry()
    running, waiting, kv_usage = map(
        registry.gauge, (names.REPLICA_RUNNING, names.REPLICA_WAITING, names.REPLICA_KV_USAGE)
    )
    for replica, runs, waits, kv in (("a-0", 3, 1, 0.25), ("a-1", 4, 0, 0.75)):
        running.labels("a", replica).set(runs)
        waiting.labels("a", replica).set(waits)
        kv_usage.labels("a", replica).set(kv)
    registry.gauge(names.HELD_REQUESTS).labels("m", "normal").set(10)
    return registry.render()


def test_a_gateway_sums_its_replicas_and_what_it_holds() -> None:
    body = gateway_page()
    page = page_of("http://gateway/metrics", body)
    assert page is not None
    assert page.is_gateway
    sample = page.read(body, 7.0)
    assert (sample.running, sample.waiting, sample.kv_usage) == (7, 11, 0.75)


def test_a_busy_vllm() -> None:
    body = (PAGES / "vllm_0.32_busy.txt").read_bytes()
    page = page_of("http://engine/metrics", body)
    assert page is not None
    assert not page.is_gateway
    first = page.read(body, 1.0)
    assert (first.running, first.waiting, first.preemptions_total) == (8, 24, 0)
    assert first.prefix_queries_total is not None
    assert page.read(body, 1.0) == first, "the second time the names' places are known"


def test_an_overloaded_sglang() -> None:
    body = (PAGES / "sglang_overloaded.txt").read_bytes()
    page = page_of("http://engine/metrics", body)
    assert page is not None
    sample = together([page.read(body, 1.0)], 1.0)
    assert (sample.running, sample.waiting) == (162, 2826)


def test_replicas_add_up_and_the_fullest_cache_counts() -> None:
    both = together(
        [
            LoadSample(0.0, running=3, waiting=0, kv_usage=0.2, preemptions_total=1, prefix_queries_total=10),
            LoadSample(0.1, running=4, waiting=2, kv_usage=0.9, preemptions_total=5, prefix_queries_total=20),
        ],
        9.0,
    )
    assert (both.at_s, both.running, both.waiting, both.kv_usage, both.preemptions) == (9.0, 7, 2, 0.9, 6)
    assert (both.prefix_queries, both.prefix_hits) == (30, None)


def test_what_one_replica_does_not_say_is_unknown_of_all() -> None:
    half = together([LoadSample(0.0, running=3, waiting=1), LoadSample(0.0)], 1.0)
    assert (half.running, half.waiting, half.kv_usage) == (None, None, None)
    assert together([], 1.0).running is None


def test_a_page_of_something_else() -> None:
    assert page_of("http://node/metrics", b"# HELP node_load1 x\nnode_load1 0.5\n") is None
    with pytest.raises(NotExposition):
        page_of("http://x/", b"<html><body>hello</body></html>")
