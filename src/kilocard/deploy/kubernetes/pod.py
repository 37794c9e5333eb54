"""The pod of one replica (or of one machine's part of it)."""

from __future__ import annotations

import re
from math import ceil
from typing import Any

from kilocard.deploy.kubernetes.names import label, object_name
from kilocard.deploy.kubernetes.quantities import cores, quantity
from kilocard.deploy.kubernetes.storage import mounts, volumes
from kilocard.deploy.replica import HUB_HOME, MODELS, PORT, Replica
from kilocard.spec.model import ClusterSpec

Object = dict[str, Any]

#: label and taint of nodes that belong to a tenant
TENANT = "kilocard/tenant"
GPU = "nvidia.com/gpu"
#: seconds between two looks at a replica that starts, and at one that serves
STARTUP_PERIOD, READINESS_PERIOD = 10, 5
#: seconds for an answer. Long: an engine with a full queue answers late and serves all the same
READINESS_TIMEOUT = 15


def pool_labels(pool: str) -> Object:
    """What tells a pool's pods from others; also the selector, so it never changes."""
    return {"app.kubernetes.io/name": "kilocard", "app.kubernetes.io/component": "engine", "kilocard/pool": label(pool)}


def pod(spec: ClusterSpec, replica: Replica, *, rank: int = 0, extra: tuple[str, ...] = ()) -> Object:
    """A pod template. `rank` above 0: it helps the one that answers requests. `extra`: argv words behind the others."""
    pool = replica.pool
    container: Object = {
        "name": "engine",
        "image": replica.image,
        "command": [_literal(word) for word in replica.argv] + list(extra),
    }
    if environment := _environment(spec, replica):
        container["env"] = environment
    if not rank:
        container["ports"] = [{"name": "http", "containerPort": PORT}]
    container["resources"] = _resources(replica)
    if not rank:
        container["startupProbe"] = {
            **_asks(replica),
            "periodSeconds": STARTUP_PERIOD,
            "timeoutSeconds": 5,
            "failureThreshold": max(1, ceil(pool.start.timeout / STARTUP_PERIOD)),
        }
        container["readinessProbe"] = {
            **_asks(replica),
            "periodSeconds": READINESS_PERIOD,
            "timeoutSeconds": READINESS_TIMEOUT,
            "failureThreshold": 3,
        }
    ending = replica.ending
    container["lifecycle"] = {"preStop": {"sleep": {"seconds": ending.worker_term if rank else ending.before_term}}}
    container["securityContext"] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container["volumeMounts"] = mounts(spec.kubernetes.model_cache, replica)
    body: Object = {
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": replica.ending.grace,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
    }
    if pool.placement.runtime_class is not None:
        body["runtimeClassName"] = pool.placement.runtime_class
    body |= _placement(replica)
    body["containers"] = [container]
    body["volumes"] = volumes(spec.kubernetes.model_cache, replica)
    return {"metadata": {"labels": pool_labels(pool.name), "annotations": _annotations(replica, rank)}, "spec": body}


def _annotations(replica: Replica, rank: int) -> Object:
    found = {"kubectl.kubernetes.io/default-container": "engine"}
    if replica.metrics_path is not None and not rank:
        found |= {
            "prometheus.io/scrape": "true",
            "prometheus.io/port": str(PORT),
            "prometheus.io/path": replica.metrics_path,
        }
    return found


def _literal(word: str) -> str:
    """Kubernetes fills $(NAME) in and takes $$ for one $; words of ours are meant as they are."""
    return re.sub(r"\$+(?=\()|\$\$+", lambda found: found[0] * 2, word)


def _environment(spec: ClusterSpec, replica: Replica) -> list[Object]:
    pool = replica.pool
    own: Object = {}
    if replica.hub_model:
        own[str(replica.capabilities.hub_cache)] = MODELS
    elif replica.capabilities.hub_cache == HUB_HOME:
        own["HF_HUB_OFFLINE"] = "1"  # a folder of the pod: nothing is asked of the hub
    if replica.machines.count > 1:
        # Not left to guessing: a pod's own name may resolve to its loopback address.
        own |= {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "eth0"}
    found: list[Object] = [{"name": key, "value": _literal(value)} for key, value in {**own, **replica.env}.items()]
    if replica.machines.count > 1 and "VLLM_HOST_IP" not in replica.env:
        found.append({"name": "VLLM_HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}})
    source = {"name": spec.kubernetes.hub_secret, "key": "token", "optional": True}
    found += [{"name": name, "valueFrom": {"secretKeyRef": source}} for name in replica.hub_tokens]
    for name in replica.secrets:
        found.append({"name": name, "valueFrom": {"secretKeyRef": {"name": object_name(pool.name), "key": name}}})
    return found


def _asks(replica: Replica) -> Object:
    return {"httpGet": {"path": replica.readiness_path, "port": "http"}}


def _resources(replica: Replica) -> Object:
    """GPUs stand in limits only: their request is the same by definition."""
    asked = replica.pool.resources
    requests: Object = {}
    limits: Object = {}
    if asked.cpu is not None:
        requests["cpu"] = cores(asked.cpu)
    if asked.memory is not None:
        requests["memory"] = limits["memory"] = quantity(asked.memory)
    if replica.machines.gpus:
        limits[GPU] = str(replica.machines.gpus)
    return {key: value for key, value in (("requests", requests), ("limits", limits)) if value}


def _placement(replica: Replica) -> Object:
    pool = replica.pool
    found: Object = {}
    if pool.placement.node_selector:
        found["nodeSelector"] = dict(pool.placement.node_selector)
    tolerations = [_toleration(taint) for taint in pool.placement.tolerations]
    if replica.machines.gpus:
        tolerations.append({"key": GPU, "operator": "Exists", "effect": "NoSchedule"})
    if pool.placement.exclusive:
        tenants = [label(tenant) for tenant in pool.tenants]
        tolerations += [{"key": TENANT, "operator": "Equal", "value": name, "effect": "NoSchedule"} for name in tenants]
        wanted = {"matchExpressions": [{"key": TENANT, "operator": "In", "values": tenants}]}
        found["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [wanted]}}
        }
    if tolerations:
        found["tolerations"] = tolerations
    if replica.machines.count == 1:
        found["topologySpreadConstraints"] = [spread(pool_labels(pool.name))]
    return found


def spread(labels: Object) -> Object:
    """Over nodes as evenly as it goes: what one node takes with it is then least."""
    return {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": labels},
    }


def _toleration(taint: str) -> Object:
    """`key[=value][:effect]`, as kubectl writes taints."""
    rest, _, effect = taint.partition(":")
    key, equals, value = rest.partition("=")
    found: Object = {"key": key, "operator": "Equal" if equals else "Exists"}
    if equals:
        found["value"] = value
    if effect:
        found["effect"] = effect
    return found
