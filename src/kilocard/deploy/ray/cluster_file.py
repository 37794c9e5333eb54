"""The cluster file as the controller on a KubeRay cluster reads it: each pool on the nodes that are its own."""

from __future__ import annotations

from dataclasses import replace

from kilocard.deploy.kubernetes.names import label
from kilocard.deploy.secrets import public, refuse_passwords
from kilocard.deploy.yaml_text import yaml_text
from kilocard.spec.deployment import KubernetesSpec
from kilocard.spec.dump import dump
from kilocard.spec.model import ClusterSpec, GatewaySpec

#: label of the Ray nodes that a pool has to itself
POOL_LABEL = "kilocard/pool"


def controller_text(spec: ClusterSpec) -> str:
    """Without what is the gateway's alone, and without secrets: nodes have those in their environment."""
    pools = {}
    for name, pool in spec.pools.items():
        selector = {**pool.placement.node_selector, POOL_LABEL: label(name)}
        placement = replace(pool.placement, node_selector=selector, exclusive=False)
        shown = replace(pool, env=public(pool.env))
        pools[name] = shown if pool.exists else replace(shown, placement=placement, tenants=())
    ray = replace(spec.ray, address="auto")
    small = replace(spec, gateway=GatewaySpec(), tenants={}, pools=pools, ray=ray, kubernetes=KubernetesSpec())
    document = dump(small)
    refuse_passwords(document)
    return yaml_text(document)
