"""Volumes of a replica's pod: shared memory, and the folder of models."""

from __future__ import annotations

from typing import Any

from kilocard.core.errors import UsageError
from kilocard.deploy.kubernetes.names import object_name
from kilocard.deploy.kubernetes.quantities import quantity
from kilocard.deploy.replica import MODELS, SHM, Replica, is_path
from kilocard.spec.deployment import ModelCacheSpec

Object = dict[str, Any]


def volumes(cache: ModelCacheSpec, replica: Replica) -> list[Object]:
    shm = {"medium": "Memory", "sizeLimit": quantity(replica.pool.resources.shm or SHM)}
    folder = _folder(cache, replica)
    return [{"name": "shm", "emptyDir": shm}, *([{"name": "models", **folder}] if folder else [])]


def mounts(cache: ModelCacheSpec, replica: Replica) -> list[Object]:
    """Raises UsageError for a model that no pod would see."""
    found: list[Object] = [{"name": "shm", "mountPath": "/dev/shm"}]  # noqa: S108  # the pod's own
    if _folder(cache, replica) is None:
        return found
    mount: Object = {"name": "models", "mountPath": MODELS}
    if is_path(replica.pool.model):
        if not str(replica.pool.model).startswith(f"{MODELS}/"):
            raise UsageError(
                f"pool {replica.pool.name!r}: pods see kubernetes.model_cache as {MODELS}, and model "
                f"{replica.pool.model} is not in it: write model: {MODELS}/…"
            )
        # Plain files are only read. A hub's cache is written to even where all is there: it keeps locks.
        mount["readOnly"] = True
    return [*found, mount]


def _folder(cache: ModelCacheSpec, replica: Replica) -> Object | None:
    """The source of the models' volume; None: the pod needs none."""
    if not replica.hub_model and not is_path(replica.pool.model):
        return None
    if cache.claim is not None or cache.size is not None:
        return {"persistentVolumeClaim": {"claimName": cache.claim or object_name("models")}}
    if cache.host_path is not None:
        return {"hostPath": {"path": cache.host_path, "type": "DirectoryOrCreate"}}
    return {"emptyDir": {}} if replica.hub_model else None  # a path that the image brings


def claim(cache: ModelCacheSpec) -> Object:
    """The claim that is made where `size` is given: several nodes write to it at once."""
    body: Object = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": quantity(cache.size or 0)}}}
    if cache.storage_class is not None:
        body["storageClassName"] = cache.storage_class
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": object_name("models"), "labels": {"app.kubernetes.io/name": "kilocard"}},
        "spec": body,
    }
