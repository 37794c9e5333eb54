"""All render targets by name. A new one is a module (or package) of this room and an entry here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kilocard.core.errors import UsageError
from kilocard.deploy.compose import COMPOSE
from kilocard.deploy.envoy import ENVOY
from kilocard.deploy.grafana import GRAFANA
from kilocard.deploy.haproxy import HAPROXY
from kilocard.deploy.helm.render import HELM
from kilocard.deploy.kubernetes.render import KUBERNETES
from kilocard.deploy.nginx import NGINX
from kilocard.deploy.prometheus import PROMETHEUS
from kilocard.deploy.ray.render import RAY
from kilocard.deploy.systemd import SYSTEMD
from kilocard.deploy.target import Target
from kilocard.spec.problems import did_you_mean

_ALL: tuple[Target, ...] = (
    KUBERNETES,
    HELM,
    RAY,
    COMPOSE,
    SYSTEMD,
    NGINX,
    HAPROXY,
    ENVOY,
    PROMETHEUS,
    GRAFANA,
)  # fmt: skip

TARGETS: Mapping[str, Target] = MappingProxyType({target.name: target for target in _ALL})


def target(name: str) -> Target:
    """Raises UsageError for a name that is not in the list."""
    found = TARGETS.get(name)
    if found is None:
        raise UsageError(f"there is no render target {name!r}: {did_you_mean(name, TARGETS)}")
    return found
