"""The sources that a cluster file asks for."""

from __future__ import annotations

from kilocard.scrape.discovery.dns import DnsDiscovery
from kilocard.scrape.discovery.source import Discovery
from kilocard.scrape.discovery.static import StaticDiscovery
from kilocard.spec.model import ClusterSpec


def configured(spec: ClusterSpec) -> list[Discovery]:
    """One source for all `endpoints`, one for each pool with `dns`. Files and Kubernetes are command-line matters."""
    sources: list[Discovery] = []
    if any(pool.endpoints for pool in spec.pools.values()):
        sources.append(StaticDiscovery(spec.pools))
    for name, pool in spec.pools.items():
        if pool.dns is not None:
            sources.append(DnsDiscovery(name, pool.dns, grace=pool.drain.grace))
    return sources
