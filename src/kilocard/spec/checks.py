"""What no single key can know: references between parts, ranges that contradict each other, models left out.

Each check stays silent where what it looks at is reported already.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kilocard.spec.checks_scaling import check_scaling
from kilocard.spec.model import ClusterSpec, ModelSpec, PoolSpec, ReplicaRange
from kilocard.spec.problems import Path, Problems, did_you_mean
from kilocard.spec.units import listen_address, show
from kilocard.spec.vocabulary import NEEDS_NO_MODEL, NEVER_STARTED, READS_PROMPTS

_WILDCARDS = {"0.0.0.0", "::"}  # noqa: S104  # compared with, not bound to


def complete(spec: ClusterSpec, problems: Problems, written: Callable[[Path], bool]) -> ClusterSpec:
    """The spec with its implied parts filled in; reports what doesn't fit. `written`: is this path in the file?"""
    for name, pool in spec.pools.items():
        _check_pool(pool, ("pools", name), problems, written)
    spec = replace(spec, pools={name: _count_endpoints(pool) for name, pool in spec.pools.items()})
    spec = replace(spec, models=_complete_models(spec, problems))
    for name, model in spec.models.items():
        _check_model(model, ("models", name), spec, problems)
    if not spec.pools and not problems.touches(("pools",)):
        problems.add(("pools",), "has no pool", "describe at least one, e.g. my-model: {engine: vllm, model: …}")
    _check_gateway(spec, problems)
    _check_endpoints(spec, problems)
    _check_tenants(spec, problems)
    _check_kubernetes(spec, problems)
    return spec


def _count_endpoints(pool: PoolSpec) -> PoolSpec:
    """A pool of endpoints has as many replicas as endpoints."""
    if not pool.endpoints:
        return pool
    return replace(pool, replicas=ReplicaRange(len(pool.endpoints), len(pool.endpoints)))


def _check_pool(pool: PoolSpec, path: Path, problems: Problems, written: Callable[[Path], bool]) -> None:
    replicas, endpoints = (*path, "replicas"), (*path, "endpoints")
    sources = (endpoints, (*path, "dns"), (*path, "service"))
    if pool.replicas.min > pool.replicas.max and not problems.touches(replicas):
        problems.add(
            (*replicas, "max"),
            f"is {pool.replicas.max}, less than min ({pool.replicas.min})",
            "raise max or lower min",
        )
    check_scaling(pool, path, problems, written)
    if pool.placement.exclusive and not pool.tenants and not problems.touches((*path, "tenants")):
        problems.add(
            (*path, "placement", "exclusive"), "is true, but the pool is everybody's", "add tenants: [name] to the pool"
        )
    _check_backoff(pool.start.backoff, pool.start.backoff_max, (*path, "start"), problems)
    if problems.touches(path) and not pool.engine:
        return  # what the pool needs depends on its engine
    if written(endpoints) and not pool.endpoints and not problems.touches(endpoints):
        problems.add(endpoints, "is an empty list", "write at least one http://host:port, or leave the key out")
    if pool.endpoints:
        _check_existing(pool, path, problems, written)
    elif pool.dns is not None and pool.service is not None:
        problems.add((*path, "service"), "is there beside dns", "keep one of the two")
    elif pool.engine in NEVER_STARTED and not pool.exists and not problems.touches(*sources):
        problems.add(
            path,
            f"has the engine {pool.engine}, which kilocard doesn't start, and no addresses",
            "add endpoints: [http://host:port, …], dns: name:port or service: name",
        )
    started = not pool.exists and not problems.touches(*sources)
    if started and pool.model is None and pool.engine not in NEEDS_NO_MODEL and not problems.touches((*path, "model")):
        problems.add(
            (*path, "model"),
            f"is missing, and {pool.engine} has to load something",
            "write a hub name, a folder or a file; for replicas that run already add endpoints",
        )


def _check_existing(pool: PoolSpec, path: Path, problems: Problems, written: Callable[[Path], bool]) -> None:
    """A pool of endpoints can't also have what only started pools have."""
    endpoints = (*path, "endpoints")
    for key, value in (("dns", pool.dns), ("service", pool.service)):
        if value is not None and not problems.touches((*path, key)):
            problems.add((*path, key), "is there beside endpoints", "keep one of the two")
    count = len(pool.endpoints)
    replicas = (*path, "replicas")
    if written(replicas) and pool.replicas != ReplicaRange(count, count) and not problems.touches(replicas, endpoints):
        problems.add(replicas, f"contradicts the {count} endpoints", "remove it: the endpoints are the replicas")
    if pool.scaling is not None and not problems.touches((*path, "scaling")):
        problems.add((*path, "scaling"), "is there, but kilocard can't add endpoints", "remove scaling or endpoints")


def _complete_models(spec: ClusterSpec, problems: Problems) -> dict[str, ModelSpec]:
    """Models without pools get the pool of their own name; pools without a model become one."""
    models = {}
    for name, model in spec.models.items():
        path = ("models", name)
        if not model.pools and name in spec.pools and not problems.touches((*path, "pools"), (*path, "pool")):
            model = replace(model, pools={name: 1})
        models[name] = model
    used = {pool for model in models.values() for pool in model.pools}
    for name in spec.pools:
        if name in used:
            continue
        if name not in models:
            models[name] = ModelSpec(name, {name: 1})
        elif not problems.touches(("models", name, "pools"), ("models", name, "pool")):
            problems.add(
                ("pools", name),
                "gets no traffic: no model names it, and the model of the same name has other pools",
                "add it to a model's pools (weight 0 to keep it idle), or remove it",
            )
    return models


def _check_model(model: ModelSpec, path: Path, spec: ClusterSpec, problems: Problems) -> None:
    pools = (*path, "pools")
    if not model.pools and not problems.touches(pools, (*path, "pool")) and not problems.at(path):
        problems.add(path, "has no pool, and there is none of its name", "add pools: {name of a pool: 100}")
    if model.pools and not sum(model.pools.values()) and not problems.touches(pools):
        problems.add(pools, "has only weights of 0, so no request can go anywhere", "give one pool a weight above 0")
    for pool in model.pools:
        if pool not in spec.pools and not problems.touches((*pools, pool)):
            problems.add((*pools, pool), "is no pool of this file", did_you_mean(pool, spec.pools))
    overheat = model.overheat
    if overheat.kv_recover >= overheat.kv_usage and not problems.touches((*path, "overheat")):
        problems.add(
            (*path, "overheat", "kv_recover"),
            f"is {overheat.kv_recover:g}, not less than kv_usage ({overheat.kv_usage:g})",
            "leave a gap between them, or replicas go in and out in turn",
        )
    _check_backoff(model.eject.backoff, model.eject.backoff_max, (*path, "eject"), problems)
    header = (*path, "affinity", "header")
    looked_at = model.policy in READS_PROMPTS or (spec.gateway.record is not None and spec.gateway.record.prefixes)
    if model.affinity.header and not looked_at and not problems.touches(header, (*path, "policy")):
        problems.add(header, f"is not looked at by policy {model.policy}", "add policy: prefix_affinity")


def _check_backoff(first: float, longest: float, path: Path, problems: Problems) -> None:
    if longest < first and not problems.touches(path):
        problems.add((*path, "backoff_max"), f"is {longest:g} s, less than backoff ({first:g} s)", "raise it")


def _check_gateway(spec: ClusterSpec, problems: Problems) -> None:
    path: Path = ("gateway", "admin")
    if problems.touches(("gateway", "listen"), path):
        return
    listen, admin = listen_address(spec.gateway.listen), listen_address(spec.gateway.admin)
    same_host = listen.host == admin.host or not _WILDCARDS.isdisjoint({listen.host, admin.host})
    if listen.port == admin.port and listen.port and same_host:
        problems.add(path, f"is {admin}, which listen ({listen}) takes already", "use another port")


def _check_endpoints(spec: ClusterSpec, problems: Problems) -> None:
    """One address in two pools would be counted and limited twice."""
    seen: dict[str, str] = {}
    for name, pool in spec.pools.items():
        for place, url in enumerate(pool.endpoints):
            other = seen.setdefault(url, name)
            path = ("pools", name, "endpoints", place)
            if other != name and not problems.touches(path):
                problems.add(path, f"is {url}, which is in the pool {show(other)} too", "remove one of them")


def _check_tenants(spec: ClusterSpec, problems: Problems) -> None:
    if not spec.tenants and not problems.touches(("tenants",)):
        for key in ("keys_file", "oidc"):
            if getattr(spec.gateway, key) is not None and not problems.touches(("gateway", key)):
                advice = "declare tenants: {name: {}} for each tenant that it names"
                problems.add(("gateway", key), "is there, but without tenants the gateway asks for no keys", advice)
    owners: dict[str, str] = {}
    for name, tenant in spec.tenants.items():
        for place, key in enumerate(tenant.keys):
            other = owners.setdefault(key, name)
            if other != name:
                path = ("tenants", name, "keys", place)
                problems.add(path, f"is a key of the tenant {show(other)} too", "make one key for each tenant")
        for model in tenant.model_limits:
            if model not in spec.models and not problems.touches(("models", model)):
                here: Path = ("tenants", name, "model_limits", model)
                problems.add(here, "is no model of this file", did_you_mean(model, spec.models))
        for place, model in enumerate(tenant.models):
            if model not in spec.models and not problems.touches(("models", model)):
                path = ("tenants", name, "models", place)
                problems.add(
                    path, f"is {show(model)}, which is no model of this file", did_you_mean(model, spec.models)
                )
    for name, pool in spec.pools.items():
        for place, owner in enumerate(pool.tenants):
            if owner not in spec.tenants and not problems.touches(("tenants", owner)):
                path = ("pools", name, "tenants", place)
                problems.add(
                    path, f"is {show(owner)}, which is no tenant of this file", did_you_mean(owner, spec.tenants)
                )


def _check_kubernetes(spec: ClusterSpec, problems: Problems) -> None:
    path: Path = ("kubernetes",)
    gateways, cache = spec.kubernetes.gateways, spec.kubernetes.model_cache
    if gateways.min > gateways.max and not problems.touches((*path, "gateways")):
        problems.add((*path, "gateways", "max"), f"is {gateways.max}, less than min ({gateways.min})", "raise it")
    kinds = [key for key in ("claim", "size", "host_path") if getattr(cache, key) is not None]
    if len(kinds) > 1:
        problems.add((*path, "model_cache", kinds[1]), f"is there beside {kinds[0]}", "keep one of them")
    if cache.storage_class is not None and cache.size is None and not problems.touches((*path, "model_cache")):
        problems.add((*path, "model_cache", "storage_class"), "is there without size", "add size: 500GiB")
