"""The gateway in Kubernetes: several copies by their CPU use, their Service, rights and guards."""

from __future__ import annotations

from math import ceil
from typing import Any

from kilocard.core.errors import UsageError
from kilocard.deploy.kubernetes.cluster_file import (
    ADMIN_PORT,
    CONFIG,
    KEYS,
    LEAVES_SLOWLY,
    PORT,
    STATE,
    TLS,
    cluster_text,
    secret_variables,
)
from kilocard.deploy.kubernetes.names import object_name
from kilocard.deploy.kubernetes.pod import spread
from kilocard.deploy.kubernetes.pool import budget, metadata, monitoring, pod_monitor
from kilocard.deploy.kubernetes.quantities import quantity
from kilocard.spec.model import ClusterSpec

Object = dict[str, Any]

NAME = object_name("gateway")
LABELS = {"app.kubernetes.io/name": "kilocard", "app.kubernetes.io/component": "gateway"}
#: bytes beside what requests hold (gateway.limits.buffered)
_OWN_MEMORY = 512 * 2**20
#: share of a core at which another gateway is added
_BUSY_PERCENT = 60
#: seconds: streams are long, so a gateway is not taken away for a short pause
_CALM = 300
#: as in the usual images without root
_USER = 65532


def gateway_objects(spec: ClusterSpec, own_image: str, namespace: str | None) -> list[Object]:
    """`namespace`: where they will be; None: nobody knows."""
    count = spec.kubernetes.gateways
    found = [
        config(spec),
        *account(spec, namespace),
        deployment(spec, own_image),
        service(spec),
        budget(NAME, LABELS),
        policy(spec),
    ]
    if count.min < count.max:
        found.append(autoscaler(spec))
    if spec.kubernetes.pod_monitors:
        found.append(pod_monitor(NAME, LABELS, "admin", "/metrics"))
    return found


def config(spec: ClusterSpec, *, found_by_service: bool = True) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(NAME, LABELS),
        "data": {"cluster.yaml": cluster_text(spec, found_by_service=found_by_service)},
    }


def account(spec: ClusterSpec, namespace: str | None) -> list[Object]:
    """Who the gateway is, and the one thing that it may do: read where replicas are, also in other namespaces that
    pools' `service` names.

    Raises UsageError for one of those where `namespace`, from which the gateway would look there, is not known.
    """
    rules = [{"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]}]
    rbac = "rbac.authorization.k8s.io"
    role: Object = {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": metadata(NAME, LABELS), "rules": rules}
    found: list[Object] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(NAME, LABELS)},
        role,
        binding(NAME, LABELS),
    ]
    for elsewhere, pool in _namespaces(spec).items():
        if namespace is None:
            raise UsageError(
                f"pool {pool!r}: its Service is in the namespace {elsewhere}, and only who is known can be given the "
                "right to look there: say kubernetes.namespace, where the gateway will be"
            )
        if elsewhere != namespace:
            there = {"name": NAME, "namespace": elsewhere, "labels": LABELS}
            found += [{**role, "metadata": there}, _bound(binding(NAME, LABELS), there, namespace)]
    return found


def _namespaces(spec: ClusterSpec) -> dict[str, str]:
    """Those that pools' Services name → the first such pool."""
    found: dict[str, str] = {}
    for pool in spec.pools.values():
        space, slash, _ = (pool.service or "").partition("/")
        if slash:
            found.setdefault(space, pool.name)
    return found


def _bound(made: Object, there: Object, namespace: str) -> Object:
    subjects = [{**subject, "namespace": namespace} for subject in made["subjects"]]
    return {**made, "metadata": there, "subjects": subjects}


def binding(name: str, labels: Object) -> Object:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": metadata(name, labels),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name}],
    }


def deployment(spec: ClusterSpec, own_image: str) -> Object:
    count = spec.kubernetes.gateways
    delay = max(spec.gateway.shutdown_delay, LEAVES_SLOWLY)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(NAME, LABELS),
        "spec": {
            # Left to the autoscaler where there is one.
            **({"replicas": count.min} if count.min == count.max else {}),
            "selector": {"matchLabels": LABELS},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            # A gateway is ready when some replica can serve, which at the first start takes as long as its weights do.
            "progressDeadlineSeconds": ceil(max(one.start.timeout for one in spec.pools.values())) + 600,
            "revisionHistoryLimit": 5,
            "template": {
                "metadata": {
                    "labels": LABELS,
                    "annotations": {
                        "prometheus.io/scrape": "true",
                        "prometheus.io/port": str(ADMIN_PORT),
                        "prometheus.io/path": "/metrics",
                    },
                },
                "spec": {
                    "enableServiceLinks": False,
                    "serviceAccountName": NAME,
                    "terminationGracePeriodSeconds": ceil(delay) + ceil(spec.gateway.drain) + 15,
                    "securityContext": {
                        "runAsNonRoot": True,
                        "runAsUser": _USER,
                        "runAsGroup": _USER,
                        "fsGroup": _USER,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "topologySpreadConstraints": [spread(LABELS)],
                    "containers": [_container(spec, own_image)],
                    "volumes": [volume for volume, _ in _volumes(spec)],
                },
            },
        },
    }


def _container(spec: ClusterSpec, own_image: str) -> Object:
    secrets = [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": NAME, "key": key}}}
        for name, key in secret_variables(spec).items()
    ]
    memory = quantity(spec.gateway.limits.buffered + _OWN_MEMORY)
    return {
        "name": "gateway",
        "image": own_image,
        "command": ["kilocard", "gateway", f"{CONFIG}/cluster.yaml"],
        "env": [{"name": "KILOCARD_HOME", "value": STATE}, *secrets],
        "ports": [{"name": "http", "containerPort": PORT}, {"name": "admin", "containerPort": ADMIN_PORT}],
        "resources": {"requests": {"cpu": "1", "memory": "512Mi"}, "limits": {"memory": memory}},
        "readinessProbe": {
            "httpGet": {"path": "/readyz", "port": "admin"},
            "periodSeconds": 2,
            "timeoutSeconds": 5,
            "failureThreshold": 2,
        },
        # Half a minute without an answer to "are you there" is a hang, not load: the page does no work.
        "livenessProbe": {
            "httpGet": {"path": "/healthz", "port": "admin"},
            "periodSeconds": 10,
            "timeoutSeconds": 10,
            "failureThreshold": 3,
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [mount for _, mount in _volumes(spec)],
    }


def _volumes(spec: ClusterSpec) -> list[tuple[Object, Object]]:
    """Each volume with its mount."""
    found: list[tuple[Object, Object]] = [
        (
            {"name": "config", "configMap": {"name": NAME}},
            {"name": "config", "mountPath": CONFIG, "readOnly": True},
        ),
        ({"name": "state", "emptyDir": {}}, {"name": "state", "mountPath": STATE}),
    ]
    if spec.gateway.tls is not None:
        found.append(_secret("tls", object_name("tls"), TLS))
    if spec.gateway.keys_file is not None:
        found.append(_secret("keys", object_name("keys"), KEYS))
    return found


def _secret(volume: str, name: str, path: str) -> tuple[Object, Object]:
    mount = {"name": volume, "mountPath": path, "readOnly": True}
    return {"name": volume, "secret": {"secretName": name}}, mount


def service(spec: ClusterSpec) -> Object:
    port = 80 if spec.gateway.tls is None else 443
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(NAME, LABELS),
        "spec": {
            "type": spec.kubernetes.expose,
            "selector": LABELS,
            "ports": [{"name": "http", "port": port, "targetPort": "http"}],
        },
    }


def policy(spec: ClusterSpec) -> Object:
    """Everybody may ask; only Prometheus reads the admin address."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(NAME, LABELS),
        "spec": {
            "podSelector": {"matchLabels": LABELS},
            "policyTypes": ["Ingress"],
            "ingress": [
                {"ports": [{"protocol": "TCP", "port": PORT}]},
                {"from": [monitoring(spec)], "ports": [{"protocol": "TCP", "port": ADMIN_PORT}]},
            ],
        },
    }


def autoscaler(spec: ClusterSpec) -> Object:
    """Of gateways only. Pools have none: CPU says nothing of them, and one writer of replica counts is enough."""
    count = spec.kubernetes.gateways
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": metadata(NAME, LABELS),
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": NAME},
            "minReplicas": count.min,
            "maxReplicas": count.max,
            "metrics": [
                {
                    "type": "Resource",
                    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": _BUSY_PERCENT}},
                }
            ],
            "behavior": {
                "scaleDown": {
                    "stabilizationWindowSeconds": _CALM,
                    "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}],
                }
            },
        },
    }
