"""Models, the pools behind them, and the ways between."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from kilocard.dispatch.config import PRIORITIES, PoolFacts
from kilocard.dispatch.first_tokens import PoolFirstTokens
from kilocard.dispatch.health import OUT, State
from kilocard.dispatch.hold import HoldQueue
from kilocard.dispatch.replica import Replica
from kilocard.dispatch.retry import RetryBudget
from kilocard.dispatch.tally import Tally
from kilocard.routing.base import Observer, Policy
from kilocard.routing.load import UNBOUNDED
from kilocard.spec.model import ModelSpec


class Pool:
    """Replicas of one pool. Health, overheat and slow start follow the first model that routes here."""

    __slots__ = ("ejected", "facts", "first_tokens", "members", "models", "name", "observers", "out",
                 "policies", "replicas", "spec", "tally", "times", "waits", "warm_at")  # fmt: skip

    facts: PoolFacts
    #: of the first model that routes here
    spec: ModelSpec

    def __init__(self, name: str) -> None:
        """`set_up` before its first use."""
        self.name = name
        self.replicas: dict[str, Replica] = {}
        #: of the replicas that are not draining: all; not ready; ejected or being probed
        self.members = 0
        self.out = 0
        self.ejected = 0
        #: when the replicas that came up together are warm; who comes later starts slowly
        self.warm_at = UNBOUNDED
        self.policies: tuple[Policy, ...] = ()
        self.observers: tuple[Observer, ...] = ()
        self.first_tokens = PoolFirstTokens()
        self.models: tuple[Model, ...] = ()
        self.tally = Tally()
        #: virtual time of the queues that wait for it, by priority class
        self.times = [0.0] * len(PRIORITIES)
        #: queues in which a tenant waits for it, by priority class and tenant; kept where queues share it (sharing.py)
        self.waits: list[dict[str, dict[Model, None]]] = [{} for _ in PRIORITIES]

    def set_up(self, facts: PoolFacts, spec: ModelSpec) -> None:
        """What the cluster file says of it now; the ways in are to be told anew."""
        self.facts = facts
        self.spec = spec
        self.policies = self.observers = ()
        self.models = ()

    def moved(self, replica: Replica, before: State, after: State) -> None:
        """The health of one of its replicas, which is not draining, is another one now."""
        self.out += (after is not State.READY) - (before is not State.READY)
        self.ejected += (after in OUT) - (before in OUT)
        if after is State.EJECTED or after is State.RESTING:
            for policy in self.policies:
                policy.lost_cache(replica)

    def enter(self, route: Route, model: Model) -> None:
        """A model routes here."""
        self.models += (model,)
        self.policies += (route.policy,)
        if route.policy.observes:
            self.observers += (route.policy,)
        hedge = model.spec.hedge
        if hedge is not None and hedge.after is None and self.first_tokens not in self.observers:
            self.observers += (self.first_tokens,)


class Route:
    """One model's way into one pool: the policy instance with its own cursor or index."""

    __slots__ = ("policy", "pool", "spilled", "weight")

    policy: Policy

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.weight = 0
        self.spilled = f"pool chosen by weight has no replica free: over to {pool.name}"


class Model:
    """A public name as one party of tenants may use it (isolation.py): routes with a positive weight, held requests,
    retry budget, output length learned."""

    __slots__ = ("budget", "closed", "declared_mean", "hedge", "hedge_budget", "hold", "only", "output_mean",
                 "routes", "spec", "tenants", "total", "used_share")  # fmt: skip

    #: share of the newest request in the two means
    NEW = 0.02

    def __init__(self, spec: ModelSpec, tenants: frozenset[str] = frozenset()) -> None:
        #: the party; empty: everybody who is in no other one
        self.tenants = tenants
        #: all its pools belong to others: this party may not use it
        self.closed = False
        self.set_up(spec, ())
        self.hold = HoldQueue()
        self.budget = RetryBudget()
        self.declared_mean = 1.0
        self.output_mean = 1.0
        #: of the tokens that are asked for, how many come
        self.used_share = 1.0

    def set_up(self, spec: ModelSpec, routes: Sequence[Route]) -> None:
        """What the cluster file says of it now."""
        self.spec = spec
        #: None: no second attempts
        self.hedge = spec.hedge
        #: second attempts that may be made now
        self.hedge_budget = 0.0
        #: heaviest first: the order in which others are tried when the chosen pool is full
        self.routes = tuple(sorted(routes, key=lambda route: -route.weight))
        self.total = sum(route.weight for route in routes)
        #: the only route, where there is one: no need to draw
        self.only = self.routes[0] if len(self.routes) == 1 else None

    def draw(self, rng: Random) -> Route:
        """A route by weight."""
        routes = self.routes
        left = rng.random() * self.total
        for route in routes:
            left -= route.weight
            if left < 0:
                return route
        return routes[-1]

    def learn(self, declared: int, produced: int) -> None:
        """Clients often ask for far more tokens than they get; the ratio of the means tells how far."""
        if declared <= 0:
            return
        self.declared_mean += self.NEW * (declared - self.declared_mean)
        self.output_mean += self.NEW * (produced - self.output_mean)
        self.used_share = self.output_mean / self.declared_mean

    @property
    def members(self) -> int:
        return sum(route.pool.members for route in self.routes)

    def why_nobody(self) -> str:
        """Reason of a hold."""
        members = self.members
        if not members:
            return "no_replica"
        if sum(route.pool.out for route in self.routes) == members:
            return "all_ejected"
        return "all_busy"
