"""The RayCluster of the KubeRay operator, with kilocard's controller beside the head."""

from __future__ import annotations

from math import ceil
from typing import Any

from kilocard.deploy.kubernetes.cluster_file import CONFIG, STATE
from kilocard.deploy.kubernetes.names import PREFIX, label, object_name
from kilocard.deploy.kubernetes.pod import GPU, pod
from kilocard.deploy.kubernetes.quantities import cores, quantity
from kilocard.deploy.ray.cluster_file import POOL_LABEL, controller_text
from kilocard.deploy.ray.gateway import admin_urls
from kilocard.deploy.ray.nodes import NOT_THESE, shm
from kilocard.deploy.replica import Replica
from kilocard.spec.model import ClusterSpec

Object = dict[str, Any]

NAME = object_name("ray")
LABELS = {"app.kubernetes.io/name": "kilocard", "app.kubernetes.io/component": "ray"}
#: the head runs no replica: its own processes, the autoscaler beside it, the controller
_HEAD_CPU, _HEAD_MEMORY = 2.0, 8 * 2**30
#: seconds that a node without replicas is kept
_IDLE = 300
#: of a Ray worker beside the engine
_NODE_MEMORY = 2 * 2**30


def ray_cluster(spec: ClusterSpec, replicas: list[Replica], image: str) -> Object:
    """`replicas`: one of each pool that is started on it."""
    body: Object = {
        "rayVersion": spec.ray.version,
        "enableInTreeAutoscaling": True,
        "autoscalerOptions": {"version": "v2", "idleTimeoutSeconds": _IDLE},
        "headGroupSpec": head(spec, image),
        "workerGroupSpecs": [worker(spec, replica) for replica in replicas],
    }
    if spec.ray.redis is not None:
        body["gcsFaultToleranceOptions"] = {"redisAddress": spec.ray.redis}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": NAME, "labels": LABELS},
        "spec": body,
    }


def controller_config(spec: ClusterSpec) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": NAME, "labels": LABELS},
        "data": {"cluster.yaml": controller_text(spec)},
    }


def head(spec: ClusterSpec, image: str) -> Object:
    """Ray's head, and the controller, which has to be on a node of the cluster: both see Ray's folder."""
    folders = [{"name": "ray", "mountPath": "/tmp/ray"}, {"name": "shm", "mountPath": "/dev/shm"}]  # noqa: S108  # pod
    told = " ".join(f"--admin {url}" for url in admin_urls(spec))
    waits = f"until ray health-check --address=127.0.0.1:{spec.ray.port}; do sleep 2; done"
    controller = {
        "name": "controller",
        "image": image,
        # until the head is up there is nothing to connect to
        "command": ["sh", "-c", f"{waits}; exec kilocard control {CONFIG}/cluster.yaml --backend ray {told}"],
        "env": [{"name": "KILOCARD_HOME", "value": STATE}],
        "resources": {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"memory": "2Gi"}},
        "securityContext": _locked(),
        "volumeMounts": [
            *folders,
            {"name": "config", "mountPath": CONFIG, "readOnly": True},
            {"name": "state", "mountPath": STATE},
        ],
    }
    ray_head = {
        "name": "ray-head",
        "image": image,
        "env": network(spec),
        "ports": [{"name": "gcs", "containerPort": spec.ray.port}],
        "resources": {
            "requests": {"cpu": cores(_HEAD_CPU), "memory": quantity(_HEAD_MEMORY)},
            "limits": {"memory": quantity(_HEAD_MEMORY)},
        },
        "securityContext": _locked(),
        "volumeMounts": folders,
    }
    return {
        "rayStartParams": {
            "port": str(spec.ray.port),
            "num-cpus": "0",
            "num-gpus": "0",
            "object-store-memory": str(spec.ray.object_store),
        },
        "template": {
            "metadata": {"labels": LABELS},
            "spec": {
                "enableServiceLinks": False,
                # a program of Ray finds the node that it is on among the processes that it sees
                "shareProcessNamespace": True,
                "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
                "containers": [ray_head, controller],
                "volumes": [
                    {"name": "ray", "emptyDir": {}},
                    {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": quantity(shm(spec, None))}},
                    {"name": "config", "configMap": {"name": NAME}},
                    {"name": "state", "emptyDir": {}},
                ],
            },
        },
    }


def worker(spec: ClusterSpec, replica: Replica) -> Object:
    """Pods that hold one replica of the pool each, or one machine's part of one. The autoscaler adds them as replicas
    are pending."""
    pool, each = replica.pool, replica.machines
    template = pod(spec, replica)
    container = template["spec"]["containers"][0]
    kept = {key: container[key] for key in ("securityContext", "volumeMounts") if key in container}
    own = {item["name"] for item in network(spec)}
    template["spec"]["containers"] = [
        {
            "name": "ray-worker",
            "image": replica.image,
            "env": [*network(spec), *(item for item in container.get("env", ()) if item["name"] not in own)],
            "resources": _resources(replica),
            **kept,
        }
    ]
    for volume in template["spec"]["volumes"]:
        if volume["name"] == "shm":
            volume["emptyDir"]["sizeLimit"] = quantity(shm(spec, replica))
    template["metadata"] = {"labels": template["metadata"]["labels"]}  # its metrics page is on a port that Ray gives
    return {
        "groupName": object_name(pool.name).removeprefix(f"{PREFIX}-"),
        "replicas": pool.replicas.min * each.count,
        "minReplicas": pool.replicas.min * each.count,
        "maxReplicas": pool.replicas.max * each.count,
        "labels": {**pool.placement.node_selector, POOL_LABEL: label(pool.name)},
        "rayStartParams": {
            "num-cpus": str(ceil(pool.resources.cpu or 1)),
            "num-gpus": str(each.gpus),
            "object-store-memory": str(spec.ray.object_store),
        },
        "template": template,
    }


def network(spec: ClusterSpec) -> list[Object]:
    """In every pod: the variables of the shell that starts vLLM do not reach Ray's workers on other nodes."""
    card = spec.ray.interface
    return [
        {"name": "VLLM_HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "NCCL_SOCKET_IFNAME", "value": card or NOT_THESE},
        {"name": "GLOO_SOCKET_IFNAME", "value": card or "eth0"},
        {"name": "RAY_USAGE_STATS_ENABLED", "value": "0"},
    ]


def _resources(replica: Replica) -> Object:
    asked = replica.pool.resources
    requests: Object = {"cpu": cores(max(1.0, asked.cpu or 1.0))}
    limits: Object = {}
    if asked.memory is not None:
        requests["memory"] = limits["memory"] = quantity(asked.memory + _NODE_MEMORY)
    if replica.machines.gpus:
        limits[GPU] = str(replica.machines.gpus)
    return {key: value for key, value in (("requests", requests), ("limits", limits)) if value}


def _locked() -> Object:
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
