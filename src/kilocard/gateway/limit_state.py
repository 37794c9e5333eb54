"""Tenants with limits: what they use and have left, for /state and /metrics. Made when somebody asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from kilocard.metrics import names
from kilocard.metrics.render import Registry
from kilocard.spec.model import TenantLimits, TenantSpec
from kilocard.tenancy.limits import KINDS, LimitStore, Scope, Scopes, Used

_NONE = TenantLimits()
#: each scope with limits, and what is used of it
Standings = Iterable[tuple[Scope, Used]]


def standings(tenants: Mapping[str, TenantSpec], store: LimitStore, now: float, wall: float) -> Standings:
    """`wall`: Unix seconds."""
    for spec in tenants.values():
        for scope in Scopes.of(spec).all():
            yield scope, store.used(scope, now, wall)


def tenants(specs: Mapping[str, TenantSpec], standings: Standings) -> list[dict[str, Any]]:
    """One entry for each tenant with limits; `model` is empty for the limit of all models together."""
    found: dict[str, dict[str, Any]] = {}
    for scope, used in standings:
        entry = found.setdefault(
            scope.tenant, {"id": scope.tenant, "in_flight": 0, "used_this_minute": 0, "limits": []}
        )
        if not (scope.model and specs[scope.tenant].limits != _NONE):  # else the tenant's own count has it
            entry["in_flight"] += used.in_flight
            entry["used_this_minute"] += used.tokens
        for kind, limit in limits(scope):
            entry["limits"].append({"limit": kind, "model": scope.model, "of": limit, "used": used.of(kind)})
    return list(found.values())


class LimitMeters:
    """The gauges."""

    def __init__(self, read: Callable[[], Standings], registry: Registry) -> None:
        self._read = read
        self._used = registry.gauge(names.LIMIT_USED)
        self._remaining = registry.gauge(names.LIMIT_REMAINING)
        registry.before_page.append(self.refresh)

    def refresh(self) -> None:
        self._used.children.clear()  # a limit that is taken back leaves no series behind
        self._remaining.children.clear()
        for scope, used in self._read():
            for kind, limit in limits(scope):
                labels = (scope.tenant, scope.model, kind)
                self._used.labels(*labels).set(used.of(kind))
                self._remaining.labels(*labels).set(max(0, limit - used.of(kind)))


def limits(scope: Scope) -> Iterator[tuple[str, int]]:
    """The limits that are set, by their kind."""
    for kind in KINDS:
        limit = getattr(scope.limits, kind)
        if limit is not None:
            yield kind, limit
