"""The target `kubernetes`."""

from __future__ import annotations

from kilocard.deploy.kubernetes.names import label, object_name
from kilocard.deploy.target import Files, RenderOptions, Target
from kilocard.deploy.yaml_text import yaml_documents
from kilocard.spec.model import ClusterSpec

PORT = 8000


def render(spec: ClusterSpec, options: RenderOptions) -> Files:
    files: Files = {}
    for pool in spec.pools.values():
        if pool.endpoints or pool.dns:
            continue
        labels = {"app.kubernetes.io/name": "kilocard", "kilocard/pool": label(pool.name)}
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": object_name(pool.name), "labels": labels},
            "spec": {
                "clusterIP": "None",
                "selector": labels,
                "ports": [{"name": "http", "port": PORT, "targetPort": "http"}],
            },
        }
        files[f"pools/{object_name(pool.name)}.yaml"] = yaml_documents([service])
    return files


KUBERNETES = Target("kubernetes", "Deployments, Services and what guards them, as a kustomization", render)
