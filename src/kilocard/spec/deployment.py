"""Where and how pools and the gateway are deployed, as frozen types; part of `spec/model.py`.

Sizes are bytes. What a target of `kilocard render` reads of these is said in docs/deploy-*.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PlacementSpec:
    node_selector: Mapping[str, str] = field(default_factory=dict)
    #: in kubectl's notation of taints: key[=value][:Effect]
    tolerations: tuple[str, ...] = ()
    #: RuntimeClass that brings the GPU driver into the container where it is not the node's default
    runtime_class: str | None = None
    #: only on nodes that belong to the pool's `tenants`
    exclusive: bool = False


@dataclass(frozen=True, slots=True)
class ResourcesSpec:
    """Of one replica, or of each machine's part of one."""

    cpu: float | None = None
    memory: int | None = None
    #: None: as the target says
    shm: int | None = None


@dataclass(frozen=True, slots=True)
class ModelCacheSpec:
    """Where replicas keep what they fetch from the hub. Nothing given: each replica for itself, until it ends."""

    #: PersistentVolumeClaim that exists
    claim: str | None = None
    #: or one of this size is made
    size: int | None = None
    storage_class: str | None = None
    #: or a folder of each node
    host_path: str | None = None


@dataclass(frozen=True, slots=True)
class GatewayCount:
    min: int = 2
    max: int = 6


@dataclass(frozen=True, slots=True)
class KubernetesSpec:
    """What Kubernetes has to know and no other backend has."""

    namespace: str | None = None
    #: image with kilocard in it; None: kilocard:VERSION
    image: str | None = None
    gateways: GatewayCount = GatewayCount()
    #: type of the gateway's Service
    expose: str = "ClusterIP"
    model_cache: ModelCacheSpec = ModelCacheSpec()
    #: Secret whose key `token` is the hub's access token; used where it exists
    hub_secret: str = "kilocard-hub"
    #: namespace of the Prometheus that may read metrics pages
    monitoring_namespace: str = "monitoring"
    #: PodMonitors for Prometheus' operator, besides the annotations that others go by
    pod_monitors: bool = False
    #: whether kilocard's controller writes the replica counts of pools with `scaling`
    controller: bool = False
