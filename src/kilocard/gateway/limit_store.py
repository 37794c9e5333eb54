"""How the store that several gateways share limits through is doing, for /metrics and /state."""

from __future__ import annotations

from typing import Any

from kilocard.metrics import names
from kilocard.metrics.meters import Counter
from kilocard.metrics.render import Family, Registry
from kilocard.tenancy.limits import LimitStore
from kilocard.tenancy.store_status import SharedStore


def export(store: LimitStore, errors: Family[Counter], registry: Registry) -> None:
    """Put it on the metrics page, if limits are shared."""
    if not isinstance(store, SharedStore):
        return
    up = registry.gauge(names.LIMIT_STORE_UP).only
    gateways = registry.gauge(names.LIMIT_GATEWAYS).only
    alone = registry.counter(names.LIMITS_ALONE).only

    def refresh() -> None:
        status = store.status()
        up.set(1 if status.up else 0)
        gateways.set(status.gateways)
        alone.value = status.decided_alone
        errors.labels("limits").value = status.errors

    registry.before_page.append(refresh)


def view(store: LimitStore) -> dict[str, Any] | None:
    """For /state; None: this process counts alone."""
    return store.status().view() if isinstance(store, SharedStore) else None
