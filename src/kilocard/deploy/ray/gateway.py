"""Gateways in front of replicas on KubeRay: a fixed number with names of their own, since the controller calls each."""

from __future__ import annotations

from typing import Any

from kilocard.deploy.kubernetes.cluster_file import ADMIN_PORT, PORT
from kilocard.deploy.kubernetes.gateway import LABELS, NAME, account, config, deployment, service
from kilocard.deploy.kubernetes.names import object_name
from kilocard.deploy.kubernetes.pool import budget, monitoring
from kilocard.spec.model import ClusterSpec

Object = dict[str, Any]

ADMIN = object_name("gateway", "admin")
#: the pods that may tell gateways where replicas are: Ray's head has the controller in it
HEAD = {"ray.io/node-type": "head"}


def gateway_objects(spec: ClusterSpec, own_image: str) -> list[Object]:
    """ConfigMap, StatefulSet, its two Services and guards. They need rights only where pools name Kubernetes Services:
    of Ray's replicas the controller tells them."""
    asks = any(pool.service is not None for pool in spec.pools.values())
    return [
        config(spec, found_by_service=False),
        *(account(spec, spec.kubernetes.namespace) if asks else []),
        _stateful_set(spec, own_image, asks),
        service(spec),
        _admin_service(),
        budget(NAME, LABELS),
        _policy(spec),
    ]


def admin_urls(spec: ClusterSpec) -> list[str]:
    """Of each gateway, as the controller reaches it."""
    return [f"http://{NAME}-{number}.{ADMIN}:{ADMIN_PORT}" for number in range(spec.kubernetes.gateways.min)]


def _stateful_set(spec: ClusterSpec, own_image: str, asks: bool) -> Object:
    made = deployment(spec, own_image)
    body = made["spec"]
    pod = dict(body["template"]["spec"])
    if not asks:
        pod["automountServiceAccountToken"] = False
        del pod["serviceAccountName"]
    return {
        **made,
        "kind": "StatefulSet",
        "spec": {
            "serviceName": ADMIN,
            "replicas": spec.kubernetes.gateways.min,
            "podManagementPolicy": "Parallel",
            "selector": body["selector"],
            "template": {**body["template"], "spec": pod},
        },
    }


def _admin_service() -> Object:
    """Headless: a name for each gateway, also for one that is not ready, since it waits to be told of replicas."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": ADMIN, "labels": LABELS},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": LABELS,
            "ports": [{"name": "admin", "port": ADMIN_PORT, "targetPort": "admin"}],
        },
    }


def _policy(spec: ClusterSpec) -> Object:
    controller = {"podSelector": {"matchLabels": HEAD}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": NAME, "labels": LABELS},
        "spec": {
            "podSelector": {"matchLabels": LABELS},
            "policyTypes": ["Ingress"],
            "ingress": [
                {"ports": [{"protocol": "TCP", "port": PORT}]},
                {"from": [controller, monitoring(spec)], "ports": [{"protocol": "TCP", "port": ADMIN_PORT}]},
            ],
        },
    }
