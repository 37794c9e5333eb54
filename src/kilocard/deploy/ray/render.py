"""The target `ray`: scripts for machines, manifests for KubeRay."""

from __future__ import annotations

from kilocard.deploy.kubernetes.render import in_namespace
from kilocard.deploy.ray.commands import scripts
from kilocard.deploy.ray.gateway import gateway_objects
from kilocard.deploy.ray.kuberay import controller_config, ray_cluster
from kilocard.deploy.ray.nodes import machines, on_ray
from kilocard.deploy.ray.serve import ray_service
from kilocard.deploy.target import Files, RenderOptions, Target
from kilocard.deploy.yaml_text import yaml_documents
from kilocard.spec.model import ClusterSpec

_HEAD = "Written by `kilocard render ray`. Change the cluster file and render again."
_SERVE = """
Instead of raycluster.yaml, where Ray Serve is to run the replicas: it routes between them and scales them, kilocard's
gateway sees one endpoint."""


def render(spec: ClusterSpec, options: RenderOptions) -> Files:
    image = spec.ray.image or f"kilocard-ray:{options.version}"
    started = [on_ray(spec, pool, image) for pool in spec.pools.values() if not pool.exists]
    space = spec.kubernetes.namespace
    cluster = [controller_config(spec), ray_cluster(spec, started, image)]
    files = scripts(spec, machines(started))
    own = spec.kubernetes.image or f"kilocard:{options.version}"
    gateways = gateway_objects(spec, own)
    files["kuberay/gateway.yaml"] = yaml_documents([in_namespace(space, one) for one in gateways], _HEAD)
    files["kuberay/raycluster.yaml"] = yaml_documents([in_namespace(space, one) for one in cluster], _HEAD)
    service = ray_service(spec, started, image)
    if service is not None:
        files["kuberay/rayservice.yaml"] = yaml_documents([in_namespace(space, service)], _HEAD + _SERVE)
    return files


RAY = Target("ray", "`ray start` for machines; RayCluster and RayService for the KubeRay operator", render)
