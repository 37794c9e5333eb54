"""Where Prometheus finds the engines' own pages."""

from __future__ import annotations

from kilocard.gateway.scrape_targets import scrape_targets
from kilocard.spec.model import ClusterSpec, ModelSpec, PoolSpec

POOLS = {"a": PoolSpec("a", "vllm"), "b": PoolSpec("b", "ollama"), "c": PoolSpec("c", "trtllm")}
SPEC = ClusterSpec(models={"m": ModelSpec("m", {"a": 1})}, pools=POOLS)


def row(id: str, pool: str, url: str | None) -> dict[str, object]:
    return {"id": id, "pool": pool, "url": url}


def test_a_replica_is_found_with_its_engines_page_and_its_pool() -> None:
    assert scrape_targets(SPEC, [row("a-0", "a", "http://10.0.0.1:8000")]) == [
        {
            "targets": ["10.0.0.1:8000"],
            "labels": {"__metrics_path__": "/metrics", "pool": "a", "replica": "a-0", "engine": "vllm"},
        }
    ]


def test_pages_are_where_the_engine_has_them() -> None:
    (found,) = scrape_targets(SPEC, [row("c-0", "c", "http://10.0.0.1:8000")])
    assert found["labels"]["__metrics_path__"] == "/prometheus/metrics"


def test_who_has_no_address_no_page_or_no_pool_any_more_is_left_out() -> None:
    rows = [row("a-0", "a", None), row("b-0", "b", "http://10.0.0.1:11434"), row("old-0", "old", "http://10.0.0.1:1")]
    assert scrape_targets(SPEC, rows) == []
