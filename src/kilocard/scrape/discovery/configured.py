"""The sources that a cluster file asks for."""

from __future__ import annotations

import os
import random
from collections.abc import Hashable, Mapping

from kilocard.net.kubernetes_api import ApiAccess, ApiServer, in_cluster
from kilocard.scrape.discovery.dns import DnsDiscovery
from kilocard.scrape.discovery.kubernetes import KubernetesDiscovery
from kilocard.scrape.discovery.source import Discovery
from kilocard.scrape.discovery.static import StaticDiscovery
from kilocard.spec.model import ClusterSpec

#: URL of an API server that asks for no credentials (`kubectl proxy`), for gateways that run outside the cluster
API_VARIABLE = "KILOCARD_KUBERNETES_API"


def configured(spec: ClusterSpec, env: Mapping[str, str] = os.environ) -> dict[Hashable, Discovery]:
    """One source for each pool with `endpoints`, `dns` or `service`, by what it looks at: equal keys are the same.

    Raises UsageError where a pool has a `service` and this is no pod with a service account (nor is API_VARIABLE set).
    """
    sources: dict[Hashable, Discovery] = {}
    for name, pool in spec.pools.items():
        if pool.endpoints:
            sources["endpoints", name, pool.endpoints] = StaticDiscovery({name: pool})
        if pool.dns is not None:
            grace = pool.drain.grace
            sources["dns", name, pool.dns, grace] = DnsDiscovery(name, pool.dns, grace=grace)
        if pool.service is not None:
            sources["service", name, pool.service] = _service(name, pool.service, env)
    return sources


def _service(pool: str, written: str, env: Mapping[str, str]) -> KubernetesDiscovery:
    """`written`: [namespace/]name[:port]."""
    rest, _, port = written.partition(":")
    namespace, _, service = rest.rpartition("/")
    url = env.get(API_VARIABLE)
    access = ApiAccess(url) if url else in_cluster(env)
    return KubernetesDiscovery(
        pool,
        service,
        api=ApiServer(access),
        # jitter of pauses between tries, so that gateways don't ask in step
        rng=random.Random(),  # noqa: S311  # no secret
        namespace=namespace or None,
        port=int(port) if port.isdecimal() else port or None,
    )
