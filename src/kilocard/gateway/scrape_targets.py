"""GET /targets: where the engines' own metrics are, in the form of Prometheus's HTTP service discovery.

Wherever replicas run, the gateway knows their addresses: nobody has to write them down twice.
"""

from __future__ import annotations

from typing import Any

from kilocard.engines.registry import engine
from kilocard.spec.model import ClusterSpec


def scrape_targets(spec: ClusterSpec, replicas: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """`replicas`: rows of /state. A replica without an address, or whose engine has no page, is left out."""
    found = []
    for row in replicas:
        pool = spec.pools.get(row["pool"])
        if pool is None or not row.get("url"):
            continue
        runs = engine(pool.engine)
        pages = runs.metrics_pages(pool)
        if pages:
            labels = {
                "__metrics_path__": pages[0].path,
                "pool": pool.name,
                "replica": row["id"],
                "engine": pool.engine,
            }
            found.append({"targets": [row["url"].removeprefix("http://")], "labels": labels})
    return found
