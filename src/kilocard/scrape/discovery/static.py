"""Replicas that the cluster file names: `endpoints` of a pool."""

from __future__ import annotations

from collections.abc import Mapping

from kilocard.core.replica import Found
from kilocard.scrape.discovery.source import Report, endpoint_at
from kilocard.spec.model import PoolSpec


class StaticDiscovery:
    """Reports them all at once and is then done."""

    name = "endpoints in the cluster file"
    problem: str | None = None

    def __init__(self, pools: Mapping[str, PoolSpec]) -> None:
        self.endpoints = {
            (endpoint := endpoint_at(name, url)).replica: endpoint
            for name, pool in pools.items()
            for url in pool.endpoints
        }

    def start(self, report: Report) -> None:
        for endpoint in self.endpoints.values():
            report(Found(endpoint))

    async def close(self) -> None:
        pass
