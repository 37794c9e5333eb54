"""Why there? The replica that was chosen beside those that would have been next. Looks only: changes nothing.

Made when somebody asks, right after the decision. The chosen replica is shown as it was before; what other requests of
the same event were sent (several leave the queue at once) is in the others' numbers already.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from kilocard.core.prefix import Prefix
from kilocard.dispatch.fleet import Fleet
from kilocard.dispatch.instructions import Send
from kilocard.dispatch.isolation import model_for
from kilocard.dispatch.replica import Replica
from kilocard.routing.load import UNBOUNDED


class Candidate(NamedTuple):
    """A replica that could take the request, as it was believed to be. Requests, shares 0–1, seconds; None: unknown."""

    replica: str
    score: float
    running: float | None
    waiting: float | None
    in_flight: int
    kv_usage: float | None
    age_s: float | None


class Explanation(NamedTuple):
    policy: str
    #: None: it is gone already
    chosen: Candidate | None
    #: best first
    others: list[Candidate]


def explain(
    fleet: Fleet,
    now: float,
    model: str,
    tenant: str,
    send: Send,
    tried: Collection[str] = (),
    most: int = 8,
    prefix: Prefix | None = None,
) -> Explanation | None:
    """None where the model is no more. Only replicas that are the tenant's to use.

    `prefix`: of the request, where its policy reads that.
    `tried`: replicas that the request has failed on, so they were not considered. `most`: of the others.
    """
    known = model_for(fleet, model, tenant)
    if known is None:
        return None
    chosen = fleet.replicas.get(send.replica)
    before = None if chosen is None else _candidate(chosen, send.decision.score, now, newest=1)
    others: list[Candidate] = []
    for route in known.routes:
        if route.pool.name == send.pool:
            for score, id in route.policy.lowest(most, {send.replica, *tried}, prefix):
                others.append(_candidate(fleet.replicas[id], score, now))
    return Explanation(known.spec.policy, before, others)


def _candidate(replica: Replica, score: float, now: float, newest: int = 0) -> Candidate:
    """`newest`: 1 to leave out the request that was just sent there."""
    waiting = replica.waiting_before() if newest else replica.waiting
    seen = replica.sampled_at > -UNBOUNDED and replica.sample is not None
    return Candidate(
        replica.id,
        round(score, 3),
        round(max(0.0, replica.load - newest - waiting), 1) if seen else None,
        round(waiting, 1) if replica.waiting_known else None,
        replica.in_flight - newest,
        replica.kv_usage,
        round(now - replica.sampled_at, 3) if seen else None,
    )
