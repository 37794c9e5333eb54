"""The cluster file as gateways in pods read it: from a ConfigMap, with replicas found by their Services."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kilocard.core.errors import UsageError
from kilocard.deploy.kubernetes.names import object_name
from kilocard.deploy.secrets import is_secret_value, public, refuse_passwords
from kilocard.deploy.yaml_text import yaml_text
from kilocard.spec.deployment import KubernetesSpec
from kilocard.spec.dump import dump
from kilocard.spec.model import ClusterSpec, GatewaySpec

Object = dict[str, Any]

PORT, ADMIN_PORT = 8000, 8001
#: seconds that a gateway goes on accepting after SIGTERM, until every balancer has heard of it
LEAVES_SLOWLY = 10.0
#: folders of the pod
CONFIG, STATE, TLS, KEYS = "/etc/kilocard", "/var/lib/kilocard", "/etc/kilocard-tls", "/etc/kilocard-keys"
#: keys whose values hold passwords → environment variable and key of the Secret that it comes from
SECRETS = {
    ("limit_store",): ("KILOCARD_LIMIT_STORE", "limit-store"),
    ("usage", "database"): ("KILOCARD_USAGE_DATABASE", "usage-database"),
    ("tracing", "endpoint"): ("KILOCARD_TRACING_ENDPOINT", "tracing-endpoint"),
}
#: of these: only a secret where a password is in it
_MAY_BE_OPEN = frozenset({("tracing", "endpoint")})


def gateway_spec(spec: ClusterSpec, *, found_by_service: bool = True) -> ClusterSpec:
    """The cluster as a gateway in a pod has to see it. Replicas are found by their Services, or told by a controller.

    Raises UsageError where it would serve everybody without having been told to.
    """
    if not spec.tenants and not spec.gateway.allow_open and spec.gateway.oidc is None:
        raise UsageError(
            "there are no tenants, and every pod of the cluster would reach the gateway: add tenants with keys "
            "(`kilocard keys create` makes one), or say gateway.allow_open: true"
        )
    pools = {name: replace(pool, env=public(pool.env)) for name, pool in spec.pools.items()}
    for name, pool in pools.items():
        if found_by_service and not pool.exists:
            pools[name] = replace(pool, service=object_name(name))
    return replace(spec, gateway=_gateway(spec.gateway), pools=pools, kubernetes=KubernetesSpec())


def _gateway(gateway: GatewaySpec) -> GatewaySpec:
    """Addresses that other pods reach, and paths that pods have."""
    tls, log, record = gateway.tls, gateway.access_log, gateway.record
    if tls is not None:
        client_ca = None if tls.client_ca is None else f"{TLS}/ca.crt"
        tls = replace(tls, certificate=f"{TLS}/tls.crt", key=f"{TLS}/tls.key", client_ca=client_ca)
    if log is not None and log.path != "-":
        log = replace(log, path=_in_state(log.path))
    if record is not None:
        record = replace(record, path=_in_state(record.path))
    return replace(
        gateway,
        listen=f"0.0.0.0:{PORT}",
        admin=f"0.0.0.0:{ADMIN_PORT}",
        shutdown_delay=max(gateway.shutdown_delay, LEAVES_SLOWLY),
        store=None if gateway.store is None else _in_state(gateway.store),
        keys_file=None if gateway.keys_file is None else f"{KEYS}/keys.yaml",
        tls=tls,
        access_log=log,
        record=record,
    )


def _in_state(path: str) -> str:
    return f"{STATE}/{path.rpartition('/')[2]}"


def secret_variables(spec: ClusterSpec) -> dict[str, str]:
    """Environment variables that the gateway needs → key of its Secret."""
    there = dump(replace(spec, pools={}, models={}))
    return dict(SECRETS[path] for path in secret_places(there))


def secret_places(document: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Those of SECRETS that a cluster file has."""
    there = {path: _at(document.get("gateway"), path) for path in SECRETS}
    return [
        path
        for path, value in there.items()
        if value is not None and (path not in _MAY_BE_OPEN or is_secret_value(value))
    ]


def cluster_text(spec: ClusterSpec, *, found_by_service: bool = True) -> str:
    """The file itself. Passwords are not in it: ${NAME} stands where the gateway's environment has them.

    Raises UsageError for a password anywhere else, and as `gateway_spec` does.
    """
    document = _escaped(dump(gateway_spec(spec, found_by_service=found_by_service)))
    for path in secret_places(document):
        *way, last = path
        place = document["gateway"]
        for part in way:
            place = place[part]
        place[last] = f"${{{SECRETS[path][0]}}}"
    refuse_passwords(document)
    return yaml_text(document)


def _at(document: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        document = document.get(part) if isinstance(document, Mapping) else None
    return document


def _escaped(value: Any) -> Any:
    """`${` in a value was meant as it is, and is written so that it is read so again."""
    if isinstance(value, str):
        return value.replace("${", "$${")
    if isinstance(value, Mapping):
        return {key: _escaped(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_escaped(item) for item in value]
    return value
