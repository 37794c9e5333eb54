"""Docker Compose: the gateway and the engines of one machine, each replica on GPUs of its own.

Fields as the Compose Specification has them; `docker compose up -d` in the folder runs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
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
from kilocard.deploy.kubernetes.names import PREFIX, object_name
from kilocard.deploy.replica import HUB_HOME, MODELS, SHM, Machines, Replica, is_path, replica
from kilocard.deploy.replica import PORT as ENGINE_PORT
from kilocard.deploy.target import Files, RenderOptions, Target
from kilocard.deploy.yaml_text import yaml_text
from kilocard.spec.model import ClusterSpec, PoolSpec
from kilocard.spec.units import Address, listen_address

_HEAD = """\
Written by `kilocard render compose`: change the cluster file and render again.
GPUs are handed out in the order of nvidia-smi, each to one replica. A variable without a value gets it from the shell,
or from a file .env beside this one."""

Thing = dict[str, Any]


def render(spec: ClusterSpec, options: RenderOptions) -> Files:
    """compose.yaml and the cluster file of its gateway.

    Raises UsageError for replicas that need several machines, and as `replica` does.
    """
    own = spec.kubernetes.image or f"kilocard:{options.version}"
    gpus = count()
    services: Thing = {"gateway": _gateway(spec, own)}
    pools: dict[str, PoolSpec] = {}
    volumes: Thing = {"state": {}}
    for pool in spec.pools.values():
        if pool.exists:
            pools[pool.name] = _elsewhere(pool)
            continue
        what = replica(spec, pool, own, _one_machine)
        names = [f"{_service(pool.name)}-{number}" for number in range(max(1, pool.replicas.min))]
        for name in names:
            services[name] = _engine(what, gpus)
        if what.hub_model or is_path(pool.model):
            volumes["models"] = {}
        pools[pool.name] = _found(pool, names)
    document = {
        "name": "kilocard",
        "services": services,
        "configs": {"cluster": {"file": "./cluster.yaml"}},
        "volumes": volumes,
    }
    inside = replace(spec, pools=pools)
    return {"compose.yaml": yaml_text(_literal(document), _HEAD), "cluster.yaml": cluster_text(inside)}


def _literal(value: Any) -> Any:
    """Compose fills in $NAME; a $ of ours is meant as it is."""
    if isinstance(value, str):
        return value.replace("$", "$$")
    if isinstance(value, dict):
        return {key: _literal(item) for key, item in value.items()}
    return [_literal(item) for item in value] if isinstance(value, list) else value


def _one_machine(pool: PoolSpec, gpus: int) -> Machines:
    if pool.gpus is not None and gpus > pool.gpus.per_node:
        raise UsageError(
            f"pool {pool.name!r}: a replica needs {gpus} GPUs and a machine has {pool.gpus.per_node} (gpus.per_node): "
            "Compose runs on one machine; render kubernetes or ray"
        )
    return Machines(1, gpus)


def _service(pool: str) -> str:
    """Compose's names are host names too, and two pools never share one."""
    return object_name(pool).removeprefix(f"{PREFIX}-")


def _elsewhere(pool: PoolSpec) -> PoolSpec:
    if pool.service is not None:
        raise UsageError(
            f"pool {pool.name!r}: a Kubernetes Service ({pool.service}) can't be looked up from outside of Kubernetes: "
            "give the pool `endpoints` or `dns`"
        )
    return pool


def _found(pool: PoolSpec, names: list[str]) -> PoolSpec:
    """The pool as the gateway sees it: replicas that run already."""
    return PoolSpec(
        name=pool.name,
        engine=pool.engine,
        args=pool.args,
        version=pool.version,
        endpoints=tuple(f"http://{name}:{ENGINE_PORT}" for name in names),
        served_model_name=pool.served_model_name,
        max_in_flight=pool.max_in_flight,
        tenants=pool.tenants,
    )


def _gateway(spec: ClusterSpec, image: str) -> Thing:
    there, admin = listen_address(spec.gateway.listen), listen_address(spec.gateway.admin)
    drain = max(LEAVES_SLOWLY, spec.gateway.shutdown_delay) + spec.gateway.drain
    environment: Thing = {"KILOCARD_HOME": STATE, **dict.fromkeys(secret_variables(spec))}
    return {
        "image": image,
        "command": ["kilocard", "gateway", f"{CONFIG}/cluster.yaml"],
        "environment": environment,
        "configs": [{"source": "cluster", "target": f"{CONFIG}/cluster.yaml"}],
        "volumes": [f"state:{STATE}", *_folders(spec)],
        # the admin address changes things: this machine alone
        "ports": [f"{_published(there)}:{PORT}", f"127.0.0.1:{admin.port or ADMIN_PORT}:{ADMIN_PORT}"],
        "stop_grace_period": f"{int(drain) + 30}s",
        "restart": "unless-stopped",
        "read_only": True,
        "tmpfs": ["/tmp"],  # noqa: S108  # the container's own
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "ulimits": {"nofile": 1_048_576},
        "healthcheck": {
            "test": [
                "CMD",
                "python3",
                "-c",
                f"import urllib.request as u; u.urlopen('http://127.0.0.1:{ADMIN_PORT}/healthz', timeout=5)",
            ],
            "interval": "10s",
            "timeout": "10s",
            "retries": 3,
        },
    }


def _folders(spec: ClusterSpec) -> list[str]:
    """Beside compose.yaml, for what no rendered file may show; they are followed when they change."""
    folders = [(spec.gateway.tls, "tls", TLS), (spec.gateway.keys_file, "keys", KEYS)]
    return [f"./{here}:{there}:ro" for wanted, here, there in folders if wanted is not None]


def _published(there: Address) -> str:
    """The address of this machine at which the cluster file has the gateway listen; a name is no such address."""
    port = there.port or PORT
    everywhere = there.host in {"0.0.0.0", "::"}  # noqa: S104  # only compared
    numbers = ":" in there.host or there.host.replace(".", "").isdecimal()
    host = "127.0.0.1" if there.host == "localhost" else there.host if numbers and not everywhere else ""
    return str(Address(host, port)) if host else str(port)


def _engine(what: Replica, gpus: Iterator[int]) -> Thing:
    service: Thing = {"image": what.image}
    # Its image may have an entry point of its own: the first word replaces that.
    service["entrypoint"], service["command"] = [what.argv[0]], list(what.argv[1:])
    if environment := _environment(what):
        service["environment"] = environment
    service["stop_grace_period"] = f"{what.ending.grace}s"
    service["restart"] = "unless-stopped"
    service["shm_size"] = what.pool.resources.shm or SHM
    service["ulimits"] = {"memlock": -1}
    service["security_opt"] = ["no-new-privileges:true"]
    # No ports: only the gateway reaches it, and it asks every replica itself whether it is ready.
    service["expose"] = [str(ENGINE_PORT)]
    if what.hub_model or is_path(what.pool.model):
        if is_path(what.pool.model) and not str(what.pool.model).startswith(f"{MODELS}/"):
            raise UsageError(
                f"pool {what.pool.name!r}: engines see the volume `models` as {MODELS}, and model {what.pool.model} is "
                f"not in it: write model: {MODELS}/…"
            )
        service["volumes"] = [f"models:{MODELS}" + (":ro" if is_path(what.pool.model) else "")]
    if what.machines.gpus:
        ids = [str(next(gpus)) for _ in range(what.machines.gpus)]
        device = {"driver": "nvidia", "device_ids": ids, "capabilities": ["gpu"]}
        service["deploy"] = {"resources": {"reservations": {"devices": [device]}}}
    return service


def _environment(what: Replica) -> Thing:
    """Of the engine. A variable without a value is the shell's."""
    environment: Thing = dict(what.env)
    if what.hub_model:
        environment.setdefault(what.capabilities.hub_cache or HUB_HOME, MODELS)
    return environment | dict.fromkeys((*what.hub_tokens, *what.secrets))


COMPOSE = Target("compose", "Docker Compose for one machine", render)
