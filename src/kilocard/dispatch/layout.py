"""Which models, pools and routes there are: laid out from the cluster file, at the start and at each change of it."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import TYPE_CHECKING

from kilocard.dispatch.config import PoolFacts
from kilocard.dispatch.topology import Model, Pool, Route
from kilocard.routing.registry import make_policy
from kilocard.spec.model import ModelSpec

if TYPE_CHECKING:
    from kilocard.dispatch.fleet import Fleet


def lay_out(fleet: Fleet, models: Mapping[str, ModelSpec], facts: Mapping[str, PoolFacts], rng: Random) -> list[Pool]:
    """Bring `fleet.models` and `fleet.pools` to what the file says; returns the pools that are no more.

    What goes on keeps its object, and with it replicas, held requests, retry budgets and what policies have learned: a
    model by its name, a pool by its name, a route by both, unless its policy has another name now. The dictionaries
    stay the same objects too, since others hold them.
    """
    models_before, pools_before = dict(fleet.models), dict(fleet.pools)
    # a pool may come back before the last replica of its former life has gone
    leaving = {replica.pool.name: replica.pool for replica in fleet.replicas.values()}
    fleet.models.clear()
    fleet.pools.clear()
    for name, spec in models.items():
        model = models_before.get(name)
        before = () if model is None else model.routes
        same_policy = model is not None and model.spec.policy == spec.policy
        routes = []
        for pool_name, weight in spec.pools.items():
            pool = fleet.pools.get(pool_name)
            if pool is None:
                known = pools_before.get(pool_name) or leaving.get(pool_name)
                pool = fleet.pools[pool_name] = known or Pool(pool_name)
                pool.set_up(facts.get(pool_name, PoolFacts()), spec)
            if weight > 0:
                known_route = next((route for route in before if route.pool is pool), None)
                route = known_route or Route(pool)
                route.weight = weight
                if known_route is None or not same_policy:
                    route.policy = make_policy(spec.policy, rng)
                    for replica in pool.replicas.values():
                        if replica.listed:
                            route.policy.add(replica)
                routes.append(route)
        if model is None:
            model = Model(spec)
        model.set_up(spec, routes)
        fleet.models[name] = model
        for route in routes:
            route.pool.enter(route, model)
    for model in models_before.values():
        if fleet.models.get(model.spec.name) is not model:
            model.set_up(model.spec, ())
    gone = [pool for pool in pools_before.values() if fleet.pools.get(pool.name) is not pool]
    for pool in gone:
        pool.set_up(pool.facts, pool.spec)
    return gone
