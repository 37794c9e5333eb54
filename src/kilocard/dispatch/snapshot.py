"""The fleet as plain data, for /state, `kilocard top` and people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TypedDict

from kilocard.dispatch.config import PRIORITIES
from kilocard.dispatch.fleet import Fleet
from kilocard.dispatch.health import State
from kilocard.dispatch.replica import Replica
from kilocard.dispatch.suspicion import Conviction
from kilocard.dispatch.topology import Model, Pool
from kilocard.routing.prefix_affinity import PrefixAffinity


class ReplicaState(TypedDict):
    """Requests, shares 0–1, seconds. None: unknown."""

    id: str
    pool: str
    #: ready, overheated, slow_start, full, draining, or a health state
    state: str
    reason: str
    in_flight: int
    #: estimates made of the last reading and what was sent and ended since
    running: float | None
    waiting: float | None
    kv_usage: float | None
    age_s: float | None
    foreign: float
    #: expected tokens of our requests there: prompts not prefilled, outputs
    prefill_tokens: int
    decode_tokens: int
    limit: int | None
    failures: int
    consecutive_failures: int
    #: seconds until an ejected replica is probed
    back_in_s: float | None


class PoolState(TypedDict):
    name: str
    replicas: int
    available: int
    ejected: int
    draining: int
    overheated: int
    in_flight: int
    waiting: float


class ModelState(TypedDict):
    name: str
    policy: str
    pools: dict[str, int]
    held: int
    #: the same by who waits, and by class
    held_by_tenant: dict[str, int]
    held_by_priority: dict[str, int]
    #: by pool, where prefix_affinity chooses: share of the expected cache hits that the engines' counters bear out
    prefix_trust: dict[str, float]
    retry_budget: float
    #: since the start
    retries_denied: int


class QuarantineState(TypedDict):
    """A body that is refused."""

    #: the beginning of its hash
    fingerprint: str
    model: str
    #: that died of it
    replicas: list[str]
    #: requests so far
    refused: int
    ends_in_s: float


class FleetState(TypedDict):
    models: list[ModelState]
    pools: list[PoolState]
    replicas: list[ReplicaState]
    quarantine: list[QuarantineState]
    held: int
    live: int


def snapshot(fleet: Fleet, convicted: Iterable[Conviction], now: float, *, held: int, live: int) -> FleetState:
    """Sorted by name; O(replicas), and of held requests O(tenants that wait)."""
    queues: dict[str, list[Model]] = {name: [] for name in fleet.models}
    for queue in fleet.queues:
        queues[queue.spec.name].append(queue)
    return {
        "models": [_model(model, queues[name]) for name, model in sorted(fleet.models.items())],
        "pools": [_pool(pool) for _, pool in sorted(fleet.pools.items())],
        "replicas": [_replica(replica, now) for _, replica in sorted(fleet.replicas.items())],
        "quarantine": [_conviction(one, now) for one in convicted],
        "held": held,
        "live": live,
    }


def _conviction(conviction: Conviction, now: float) -> QuarantineState:
    return {
        "fingerprint": conviction.short,
        "model": conviction.model,
        "replicas": list(conviction.replicas),
        "refused": conviction.refused,
        "ends_in_s": round(max(0.0, conviction.until - now), 1),
    }


def _model(model: Model, queues: list[Model]) -> ModelState:
    tenants: Counter[str] = Counter()
    classes = dict.fromkeys(PRIORITIES, 0)
    for queue in queues:
        tenants.update(queue.hold.by_tenant())
        for name, count in queue.hold.by_priority().items():
            classes[name] += count
    return {
        "name": model.spec.name,
        "policy": model.spec.policy,
        "pools": dict(model.spec.pools),
        "held": tenants.total(),
        "held_by_tenant": dict(sorted(tenants.items())),
        "held_by_priority": classes,
        "prefix_trust": {
            route.pool.name: round(route.policy.trust.share, 3)
            for route in model.routes
            if isinstance(route.policy, PrefixAffinity)
        },
        "retry_budget": round(model.budget.tokens, 1),
        "retries_denied": model.budget.denied,
    }


def _pool(pool: Pool) -> PoolState:
    replicas = list(pool.replicas.values())
    return {
        "name": pool.name,
        "replicas": len(replicas),
        "available": sum(replica.listed for replica in replicas),
        "ejected": pool.ejected,
        "draining": sum(replica.draining for replica in replicas),
        "overheated": sum(replica.hot for replica in replicas),
        "in_flight": sum(replica.in_flight for replica in replicas),
        "waiting": round(sum(replica.waiting for replica in replicas), 1),
    }


def _replica(replica: Replica, now: float) -> ReplicaState:
    state, reason = state_of(replica)
    health = replica.health
    return {
        "id": replica.id,
        "pool": replica.pool.name,
        "state": state,
        "reason": reason,
        "in_flight": replica.in_flight,
        "running": None if replica.sample is None else round(max(0.0, replica.load - replica.waiting), 1),
        "waiting": round(replica.waiting, 1) if replica.waiting_known else None,
        "kv_usage": replica.kv_usage,
        "age_s": None if replica.sample is None else round(now - replica.sampled_at, 3),
        "foreign": round(replica.foreign - replica.peers.in_flight, 1),
        "prefill_tokens": replica.prefill,
        "decode_tokens": replica.decode,
        "limit": None if replica.limit == float("inf") else int(replica.limit),
        "failures": health.failures,
        "consecutive_failures": health.consecutive,
        "back_in_s": round(max(0.0, health.until - now), 2) if health.state is State.EJECTED else None,
    }


def state_of(replica: Replica) -> tuple[str, str]:
    """What a person should see: the state, and why if it is not plain ready."""
    health = replica.health
    if replica.draining:
        return "draining", f"{replica.in_flight} requests to finish"
    if health.state is not State.READY:
        return health.state.value, health.cause
    if replica.hot:
        kv = "" if replica.kv_usage is None else f", KV cache {replica.kv_usage:.0%} full"
        return "overheated", f"about {replica.waiting:.0f} requests wait{kv}"
    if replica.ramp_from is not None:
        return "slow_start", f"at most {replica.limit:.0f} requests for now"
    if not replica.listed:
        return "full", f"{replica.in_flight} requests, at its bound"
    if replica.handicap and health.consecutive >= replica.pool.spec.eject.consecutive:
        return "ready", f"{health.consecutive} failures in a row, but too few others are left to eject it"
    return "ready", ""
