"""The target `kubernetes`: a folder for `kubectl apply -k`."""

from __future__ import annotations

from typing import Any

from kilocard.core.errors import UsageError
from kilocard.deploy.kubernetes.controller import controller_objects
from kilocard.deploy.kubernetes.gateway import gateway_objects
from kilocard.deploy.kubernetes.names import object_name
from kilocard.deploy.kubernetes.pool import pool_objects
from kilocard.deploy.kubernetes.storage import claim
from kilocard.deploy.replica import Replica, replica
from kilocard.deploy.target import Files, RenderOptions, Target
from kilocard.deploy.yaml_text import yaml_documents, yaml_text
from kilocard.spec.model import ClusterSpec

Object = dict[str, Any]

#: objects that are no pool's
OWN_NAMES = ("gateway", "controller", "models", "tls", "keys", "hub")
_HEAD = "Written by `kilocard render kubernetes`. Change the cluster file and render again."


def own_image(spec: ClusterSpec, options: RenderOptions) -> str:
    """The image with kilocard in it."""
    return spec.kubernetes.image or f"kilocard:{options.version}"


def objects(spec: ClusterSpec, options: RenderOptions) -> dict[str, list[Object]]:
    """All objects, by the file that they belong into."""
    own = own_image(spec, options)
    started = [replica(spec, pool, own) for pool in spec.pools.values() if not pool.exists]
    _names_differ(started)
    found: dict[str, list[Object]] = {}
    if spec.kubernetes.namespace is not None:
        found["namespace.yaml"] = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": spec.kubernetes.namespace}}
        ]
    if spec.kubernetes.model_cache.size is not None:
        found["models.yaml"] = [claim(spec.kubernetes.model_cache)]
    found["gateway.yaml"] = gateway_objects(spec, own, spec.kubernetes.namespace or options.namespace)
    if spec.kubernetes.controller:
        scaled = [one for one in started if one.pool.scaling is not None]
        if controller := controller_objects(scaled, own):
            found["controller.yaml"] = controller
    for one in started:
        found[f"pool-{object_name(one.pool.name).removeprefix('kilocard-')}.yaml"] = pool_objects(spec, one)
    space = spec.kubernetes.namespace
    return {file: [in_namespace(space, each) for each in each_file] for file, each_file in found.items()}


def _names_differ(started: list[Replica]) -> None:
    """Raises UsageError where two pools, or a pool and an object of kilocard's own, would have one name."""
    taken = {object_name(own): f"kilocard's own {own}" for own in OWN_NAMES}
    for one in started:
        pool = one.pool.name
        names = [object_name(pool)] + ([object_name(pool, "group")] if one.machines.count > 1 else [])
        for name in names:
            if name in taken:
                raise UsageError(
                    f"pool {pool!r}: in Kubernetes its objects and {taken[name]} would both be called {name}: rename it"
                )
            taken[name] = f"those of pool {pool!r}"


def in_namespace(namespace: str | None, thing: Object) -> Object:
    if namespace is None or thing["kind"] == "Namespace":
        return thing
    head = {"name": thing["metadata"]["name"], "namespace": namespace}
    placed = {**thing, "metadata": {**head, **thing["metadata"]}}
    if thing["kind"] == "RoleBinding":
        placed["subjects"] = [{**subject, "namespace": namespace} for subject in thing["subjects"]]
    return placed


def render(spec: ClusterSpec, options: RenderOptions) -> Files:
    files = {file: yaml_documents(each, _HEAD) for file, each in objects(spec, options).items()}
    listed: Object = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": list(files),
    }
    return {"kustomization.yaml": yaml_text(listed, _HEAD), **files}


KUBERNETES = Target("kubernetes", "Deployments, Services and what guards them, for `kubectl apply -k`", render)
