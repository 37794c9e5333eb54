"""A tenant that waits in several queues of one pool: its weight is divided among them.

Queues share a pool by the weights of the tenants that wait in them (waiting.py). Counted whole in each, a tenant would
get more by asking for more models: with every adapter that it uses one share more. Divided, it weighs the same however
many of its queues wait there. Each priority class for itself, since classes share nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from kilocard.dispatch.topology import Model, Pool


def changed(model: Model, place: int, tenant: str) -> None:
    """Requests of a tenant have come to this queue's class `place`, or have left it. O(queues that it waits in)."""
    if _is_alone(model, tenant):
        return
    waits = model.hold.lines[place].length(tenant) > 0
    if waits is _is_known(model, place, tenant):
        return
    by = 1 if waits else -1
    others = dict.fromkeys(other for route in model.routes for other in route.pool.waits[place].get(tenant, ()))
    others.pop(model, None)
    for other in others:
        other.hold.lines[place].spread(tenant, by)
    if waits:
        model.hold.lines[place].spread(tenant, len(others))
    for route in model.routes:
        queues = route.pool.waits[place]
        if waits:
            queues.setdefault(tenant, {})[model] = None
        elif (known := queues.get(tenant)) is not None:  # None: a reload has just led it here
            known.pop(model, None)
            if not known:
                del queues[tenant]


def count_anew(pools: Iterable[Pool], models: Iterable[Model]) -> None:
    """Which queues share which pools is another thing now."""
    for pool in pools:
        for queues in pool.waits:
            queues.clear()
    waiting = [
        (model, place, tenant)
        for model in models
        for place, line in enumerate(model.hold.lines)
        if line.count
        for tenant in line.gather()
    ]
    # Who waits where comes first: changed(), once for each, would tell all others of each.
    shared = [(model, place, tenant) for model, place, tenant in waiting if not _is_alone(model, tenant)]
    for model, place, tenant in shared:
        for route in model.routes:
            route.pool.waits[place].setdefault(tenant, {})[model] = None
    for model, place, tenant in shared:
        beside: set[Model] = set()
        for route in model.routes:
            beside.update(route.pool.waits[place][tenant])
        model.hold.lines[place].spread(tenant, len(beside) - 1)


def _is_alone(model: Model, tenant: str) -> bool:
    """There is nobody to share with: the usual case. An open gateway's requests are all nobody's ("")."""
    only = model.only
    return not tenant or not model.routes or (only is not None and len(only.pool.models) == 1)


def _is_known(model: Model, place: int, tenant: str) -> bool:
    return any(model in route.pool.waits[place].get(tenant, ()) for route in model.routes)
