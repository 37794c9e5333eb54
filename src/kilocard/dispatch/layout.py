"""Which models, pools and routes there are: laid out from the cluster file, at the start and at each change of it."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import TYPE_CHECKING

from kilocard.dispatch.config import PoolFacts
from kilocard.dispatch.isolation import parties
from kilocard.dispatch.topology import Model, Pool, Route
from kilocard.routing.registry import make_policy
from kilocard.spec.model import ModelSpec

if TYPE_CHECKING:
    from kilocard.dispatch.fleet import Fleet


def lay_out(fleet: Fleet, models: Mapping[str, ModelSpec], facts: Mapping[str, PoolFacts], rng: Random) -> list[Pool]:
    """Bring `fleet.models` and `fleet.pools` to what the file says; returns the pools that are no more.

    What goes on keeps its object, and with it replicas, held requests, retry budgets and what policies have learned: a
    model by its name and party, a pool by its name, a route by both, unless its policy has another name now. The
    collections stay the same objects too, since others hold them.
    """
    models_before = {(model.spec.name, model.tenants): model for model in fleet.queues}
    pools_before = dict(fleet.pools)
    # a pool may come back before the last replica of its former life has gone
    leaving = {replica.pool.name: replica.pool for replica in fleet.replicas.values()}
    for collection in (fleet.models, fleet.private, fleet.queues, fleet.pools):
        collection.clear()
    for name, spec in models.items():
        for pool_name in spec.pools:
            if pool_name not in fleet.pools:
                pool = fleet.pools[pool_name] = pools_before.get(pool_name) or leaving.get(pool_name) or Pool(pool_name)
                pool.set_up(facts.get(pool_name, PoolFacts()), spec)
        for party in parties(spec, facts):
            known = models_before.pop((name, party.tenants), None)
            model = known or Model(spec, party.tenants)
            same_policy = known is not None and known.spec.policy == spec.policy
            before = {} if known is None else {route.pool.name: route for route in known.routes}
            routes = []
            for pool_name in party.pools:
                pool, weight = fleet.pools[pool_name], spec.pools[pool_name]
                if weight <= 0:
                    continue
                known_route = before.get(pool_name)
                route = known_route if known_route is not None and known_route.pool is pool else Route(pool)
                route.weight = weight
                if route is not known_route or not same_policy:
                    route.policy = make_policy(spec.policy, rng)
                    for replica in pool.replicas.values():
                        if replica.listed:
                            route.policy.add(replica)
                routes.append(route)
            model.set_up(spec, routes)
            model.closed = bool(spec.pools) and not party.pools
            fleet.queues.append(model)
            if party.tenants:
                fleet.private.update({(name, tenant): model for tenant in party.tenants})
            else:
                fleet.models[name] = model
            for route in routes:
                route.pool.enter(route, model)
    for model in models_before.values():
        model.set_up(model.spec, ())
    gone = [pool for pool in pools_before.values() if fleet.pools.get(pool.name) is not pool]
    for pool in gone:
        pool.set_up(pool.facts, pool.spec)
    return gone
