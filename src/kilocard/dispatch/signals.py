"""What whoever scales has to know, read from the dispatcher: the counts of each pool, and each replica's load.

Read about once a second. It costs O(replicas + held requests), some 2 µs for each replica; requests cost what
tally.py counts of them.
"""

from __future__ import annotations

from kilocard.core.signals import Phase, PoolSignals, ReplicaSignals
from kilocard.dispatch.fleet import Fleet
from kilocard.dispatch.health import State
from kilocard.dispatch.replica import Replica
from kilocard.dispatch.topology import Pool


class _Held:
    """Requests that wait in the gateway for one pool."""

    __slots__ = ("count", "oldest", "tokens")

    def __init__(self) -> None:
        self.count = 0
        self.tokens = 0
        #: when the one that waits longest began to
        self.oldest: float | None = None


def pool_signals(fleet: Fleet, now: float, source: str) -> dict[str, PoolSignals]:
    """By name, all pools of the cluster file that a model routes to. `source`: this process, in this life of it.

    A held request counts for the pool that the weights chose; it may still go to another one of its model.
    """
    held = {name: _Held() for name in fleet.pools}
    for model in fleet.queues:
        for request in model.hold.requests():
            waiting = held.get(request.route.pool.name)
            if waiting is not None:
                waiting.count += 1
                waiting.tokens += request.prompt + request.output
                if waiting.oldest is None or request.held_at < waiting.oldest:
                    waiting.oldest = request.held_at
    return {name: _pool(pool, held[name], now, source) for name, pool in fleet.pools.items()}


def _pool(pool: Pool, held: _Held, now: float, source: str) -> PoolSignals:
    tally = pool.tally
    replicas = pool.replicas.values()
    return PoolSignals(
        pool.name,
        sources=(source,),
        arrived=tally.arrived,
        prompt_tokens=tally.prompt_tokens,
        finished=tally.finished,
        output_tokens=tally.output_tokens,
        refused=tally.refused,
        hold=tuple(tally.hold),
        first_token=tuple(tally.first_token),
        held=held.count,
        held_oldest_s=0.0 if held.oldest is None else now - held.oldest,
        held_tokens=held.tokens,
        in_flight=sum(replica.in_flight for replica in replicas),
        in_flight_tokens=sum(map(_tokens, replicas)),
    )


def replica_signals(fleet: Fleet, now: float) -> list[ReplicaSignals]:
    """Each replica as this gateway sees it. Those that it was never told of (they are starting) are not here."""
    return [_replica(replica, now) for replica in fleet.replicas.values()]


def _replica(replica: Replica, now: float) -> ReplicaSignals:
    sample = replica.sample
    state = replica.health.state
    if replica.draining:
        phase = Phase.DRAINING
    elif state is State.READY:
        phase = Phase.READY
    else:
        phase = Phase.FAILING
    asked = sample.prefix_queries_total if sample is not None else None
    had = sample.prefix_hits_total if sample is not None else None
    return ReplicaSignals(
        replica.id,
        replica.pool.name,
        phase,
        since_s=now - replica.up_at,
        running=sample.running if sample is not None else None,
        waiting=sample.waiting if sample is not None else None,
        kv_usage=sample.kv_usage if sample is not None else None,
        age_s=now - replica.sampled_at if sample is not None else None,
        in_flight=replica.in_flight,
        in_flight_tokens=_tokens(replica),
        cached_share=had / asked if asked and had is not None else None,
    )


def _tokens(replica: Replica) -> int:
    """Expected of our own requests there: prompts that are not computed yet, and answers."""
    peers = replica.peers
    return max(0, replica.prefill - peers.prefill) + max(0, replica.decode - peers.decode)
