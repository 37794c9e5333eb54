"""What one pool is in Kubernetes: a Deployment (or groups of pods), its Service, and what guards them."""

from __future__ import annotations

from math import ceil
from typing import Any

from kilocard.core.errors import UsageError
from kilocard.deploy.kubernetes.names import object_name
from kilocard.deploy.kubernetes.pod import pod, pool_labels
from kilocard.deploy.replica import PORT, Replica
from kilocard.spec.model import ClusterSpec, PoolSpec

Object = dict[str, Any]

#: what LeaderWorkerSet puts on its pods: 0 on the one that answers requests
WORKER_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"
#: and into their environment
_GROUP = {"size": "$(LWS_GROUP_SIZE)", "rank": "$(LWS_WORKER_INDEX)", "leader": "$(LWS_LEADER_ADDRESS)"}


def pool_objects(spec: ClusterSpec, replica: Replica) -> list[Object]:
    """The objects of a pool whose replicas are started here."""
    runs = deployment(spec, replica) if replica.machines.count == 1 else group(spec, replica)
    name, labels = object_name(replica.pool.name), pool_labels(replica.pool.name)
    found = [runs, service(replica), budget(name, labels), policy(spec, replica)]
    if spec.kubernetes.pod_monitors and replica.metrics_path is not None:
        found.append(pod_monitor(name, labels, "http", replica.metrics_path))
    return found


def metadata(name: str, labels: Object) -> Object:
    return {"name": name, "labels": labels}


def replica_count(spec: ClusterSpec, pool: PoolSpec) -> Object:
    """`replicas`, unless the controller writes it: a count in the manifest would set it back at every apply.

    Raises UsageError for a pool that would sleep for ever.
    """
    if pool.scaling is not None and spec.kubernetes.controller:
        return {}
    if pool.sleeps:
        raise UsageError(
            f"pool {pool.name!r}: replicas.min is 0, and without kubernetes.controller nobody would ever "
            "start one: use min: 1, or remove scaling if it is to be off"
        )
    return {"replicas": pool.replicas.min}


def deployment(spec: ClusterSpec, replica: Replica) -> Object:
    pool = replica.pool
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(object_name(pool.name), pool_labels(pool.name)),
        "spec": {
            **replica_count(spec, pool),
            "selector": {"matchLabels": pool_labels(pool.name)},
            # A new replica is ready before an old one leaves: it needs a free place, and takes no capacity away.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            # Not "failed" while weights are still being loaded, or an old replica finishes its requests.
            "progressDeadlineSeconds": ceil(pool.start.timeout) + replica.ending.grace + 60,
            "revisionHistoryLimit": 5,
            "template": pod(spec, replica),
        },
    }


def group(spec: ClusterSpec, replica: Replica) -> Object:
    """A replica over several machines: a leader, which answers requests, and workers; they start and end together."""
    pool, flags = replica.pool, replica.capabilities.group
    assert flags is not None  # replica() refuses engines without
    joined = tuple(word.format(**_GROUP) for word in flags.flags)
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        # Not the Service's name: the controller of these sets makes a Service of its own by this one.
        "metadata": metadata(object_name(pool.name, "group"), pool_labels(pool.name)),
        "spec": {
            **replica_count(spec, pool),
            "startupPolicy": "LeaderCreated",
            "rolloutStrategy": {
                "type": "RollingUpdate",
                "rollingUpdateConfiguration": {"maxUnavailable": 1, "maxSurge": 0},
            },
            "leaderWorkerTemplate": {
                "size": replica.machines.count,
                "restartPolicy": "RecreateGroupOnPodRestart",
                "leaderTemplate": pod(spec, replica, extra=joined),
                "workerTemplate": pod(spec, replica, rank=1, extra=(*joined, *flags.worker_flags)),
            },
        },
    }


def service(replica: Replica) -> Object:
    """Headless: the gateway reads its EndpointSlices and chooses the replica itself."""
    name = replica.pool.name
    selector = pool_labels(name)
    if replica.machines.count > 1:
        selector = {**selector, WORKER_INDEX: "0"}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(object_name(name), pool_labels(name)),
        "spec": {
            "clusterIP": "None",
            "selector": selector,
            "ports": [{"name": "http", "port": PORT, "targetPort": "http"}],
        },
    }


def budget(name: str, labels: Object) -> Object:
    """Nodes that are emptied take one replica at a time, and a broken one at once."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(name, labels),
        "spec": {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": labels},
        },
    }


def pod_monitor(name: str, labels: Object, port: str, path: str) -> Object:
    """For Prometheus' operator. Pods without such a port (helpers of a group) are passed over."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": metadata(name, labels),
        "spec": {"selector": {"matchLabels": labels}, "podMetricsEndpoints": [{"port": port, "path": path}]},
    }


def policy(spec: ClusterSpec, replica: Replica) -> Object:
    """Who reaches replicas: the gateway, Prometheus, and pods of the same group."""
    labels = pool_labels(replica.pool.name)
    gateway = {"app.kubernetes.io/name": "kilocard", "app.kubernetes.io/component": "gateway"}
    rules: list[Object] = [
        {
            "from": [{"podSelector": {"matchLabels": gateway}}, monitoring(spec)],
            "ports": [{"protocol": "TCP", "port": PORT}],
        }
    ]
    if replica.machines.count > 1:
        rules.append({"from": [{"podSelector": {"matchLabels": labels}}]})
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(object_name(replica.pool.name), labels),
        "spec": {"podSelector": {"matchLabels": labels}, "policyTypes": ["Ingress"], "ingress": rules},
    }


def monitoring(spec: ClusterSpec) -> Object:
    """Where Prometheus asks from."""
    labels = {"kubernetes.io/metadata.name": spec.kubernetes.monitoring_namespace}
    return {"namespaceSelector": {"matchLabels": labels}}
