"""A RayService: Ray Serve runs the replicas, and kilocard's gateway sees one endpoint for each pool's model.

For those who want Serve to own replicas. Serve then routes and scales; kilocard keeps tenants, limits and metering.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kilocard.deploy.ray.kuberay import LABELS, NAME, ray_cluster
from kilocard.deploy.replica import Replica
from kilocard.deploy.yaml_text import yaml_text
from kilocard.engines.flags import arguments
from kilocard.engines.registry import engine
from kilocard.spec.model import ClusterSpec
from kilocard.spec.served import served_names

Object = dict[str, Any]

#: requests that Serve aims at for each replica, where nothing says how many one runs at once
_ONGOING = 64


def ray_service(spec: ClusterSpec, replicas: Sequence[Replica], image: str) -> Object | None:
    """None where no pool's engine is one that Ray Serve runs."""
    ours = [replica for replica in replicas if replica.capabilities.ray_serve]
    if not ours:
        return None
    cluster = ray_cluster(spec, ours, image)["spec"]
    head = cluster["headGroupSpec"]["template"]["spec"]
    head["containers"] = head["containers"][:1]  # Serve has a controller of its own
    head["containers"][0]["ports"].append({"name": "serve", "containerPort": 8000})
    del head["shareProcessNamespace"]
    head["volumes"] = [volume for volume in head["volumes"] if volume["name"] in ("ray", "shm")]
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayService",
        "metadata": {"name": NAME, "labels": LABELS},
        "spec": {"serveConfigV2": yaml_text({"applications": [application(spec, ours)]}), "rayClusterConfig": cluster},
    }


def application(spec: ClusterSpec, replicas: Sequence[Replica]) -> Object:
    """Serve's own OpenAI-compatible application, with one model for each pool."""
    return {
        "name": "kilocard",
        "import_path": "ray.serve.llm:build_openai_app",
        "route_prefix": "/",
        "args": {"llm_configs": [llm_config(spec, replica) for replica in replicas]},
    }


def llm_config(spec: ClusterSpec, replica: Replica) -> Object:
    pool = replica.pool
    kwargs = {key.replace("-", "_"): value for key, value in arguments(pool).items()}
    if pool.gpus is not None:
        kwargs |= {"tensor_parallel_size": pool.gpus.tensor, "pipeline_parallel_size": pool.gpus.pipeline}
    ongoing = engine(pool.engine).max_running(pool) or _ONGOING
    names = served_names(spec, pool.name)
    return {
        "model_loading_config": {
            "model_id": pool.served_model_name or (names[0] if names else pool.name),
            "model_source": pool.model,
        },
        "engine_kwargs": kwargs,
        "deployment_config": {
            "autoscaling_config": {
                "min_replicas": pool.replicas.min,
                "max_replicas": pool.replicas.max,
                "target_ongoing_requests": ongoing,
            },
            "max_ongoing_requests": 2 * ongoing,
            "graceful_shutdown_timeout_s": pool.drain.grace,
        },
        "runtime_env": {"env_vars": dict(replica.env)},
    }
