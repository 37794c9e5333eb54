"""The sources that a cluster file asks for."""

from __future__ import annotations

from collections.abc import Hashable

from kilocard.scrape.discovery.dns import DnsDiscovery
from kilocard.scrape.discovery.source import Discovery
from kilocard.scrape.discovery.static import StaticDiscovery
from kilocard.spec.model import ClusterSpec


def configured(spec: ClusterSpec) -> dict[Hashable, Discovery]:
    """One source for each pool with `endpoints` or `dns`, by what it looks at: equal keys need no new source.

    Files and Kubernetes are command-line matters.
    """
    sources: dict[Hashable, Discovery] = {}
    for name, pool in spec.pools.items():
        if pool.endpoints:
            sources["endpoints", name, pool.endpoints] = StaticDiscovery({name: pool})
        if pool.dns is not None:
            grace = pool.drain.grace
            sources["dns", name, pool.dns, grace] = DnsDiscovery(name, pool.dns, grace=grace)
    return sources
