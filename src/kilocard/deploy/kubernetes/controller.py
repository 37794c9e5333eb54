"""The controller in Kubernetes: one copy, and rights to nothing but the pools that it scales.

Written only where `kubernetes.controller` is true.
"""

from __future__ import annotations

from typing import Any

from kilocard.deploy.kubernetes.cluster_file import CONFIG, STATE
from kilocard.deploy.kubernetes.gateway import NAME as GATEWAY
from kilocard.deploy.kubernetes.gateway import binding
from kilocard.deploy.kubernetes.names import object_name
from kilocard.deploy.kubernetes.pool import metadata
from kilocard.deploy.replica import Replica

Object = dict[str, Any]

NAME = object_name("controller")
LABELS = {"app.kubernetes.io/name": "kilocard", "app.kubernetes.io/component": "controller"}


def controller_objects(replicas: list[Replica], own_image: str) -> list[Object]:
    """`replicas`: one of each pool that is scaled. Empty where there is none."""
    if not replicas:
        return []
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(NAME, LABELS)}
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": metadata(NAME, LABELS),
        "rules": rules(replicas),
    }
    return [account, role, binding(NAME, LABELS), deployment(own_image)]


def rules(replicas: list[Replica]) -> list[Object]:
    """Counts of the scaled pools by name; pods to read, and to mark the one that should go; a lease of its own."""
    single = [object_name(one.pool.name) for one in replicas if one.machines.count == 1]
    groups = [object_name(one.pool.name, "group") for one in replicas if one.machines.count > 1]
    found: list[Object] = []
    for api, kind, names in (
        ("apps", "deployments", single),
        ("leaderworkerset.x-k8s.io", "leaderworkersets", groups),
    ):
        if names:
            found.append(
                {
                    "apiGroups": [api],
                    "resources": [kind, f"{kind}/scale"],
                    "resourceNames": names,
                    "verbs": ["get", "patch"],
                }
            )
    lease = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    return [
        *found,
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "patch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]},
        {**lease, "verbs": ["create"]},  # what does not exist yet has no name to limit this by
        {**lease, "resourceNames": [NAME], "verbs": ["get", "update", "patch"]},
    ]


def deployment(own_image: str) -> Object:
    user = 65532
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(NAME, LABELS),
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": LABELS},
            "strategy": {"type": "Recreate"},  # never two at once
            "template": {
                "metadata": {"labels": LABELS},
                "spec": {
                    "enableServiceLinks": False,
                    "serviceAccountName": NAME,
                    "securityContext": {
                        "runAsNonRoot": True,
                        "runAsUser": user,
                        "runAsGroup": user,
                        "fsGroup": user,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [
                        {
                            "name": "controller",
                            "image": own_image,
                            "command": ["kilocard", "control", f"{CONFIG}/cluster.yaml", "--backend", "kubernetes"],
                            "env": [{"name": "KILOCARD_HOME", "value": STATE}],
                            "resources": {
                                "requests": {"cpu": "100m", "memory": "128Mi"},
                                "limits": {"memory": "512Mi"},
                            },
                            "securityContext": {
                                "allowPrivilegeEscalation": False,
                                "readOnlyRootFilesystem": True,
                                "capabilities": {"drop": ["ALL"]},
                            },
                            "volumeMounts": [
                                {"name": "config", "mountPath": CONFIG, "readOnly": True},
                                {"name": "state", "mountPath": STATE},
                            ],
                        }
                    ],
                    "volumes": [
                        {"name": "config", "configMap": {"name": GATEWAY}},
                        {"name": "state", "emptyDir": {}},
                    ],
                },
            },
        },
    }
