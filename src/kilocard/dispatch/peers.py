"""What the gateway's other workers tell of a replica."""

from __future__ import annotations

from random import Random

from kilocard.dispatch import events as ev
from kilocard.dispatch.fleet import Fleet
from kilocard.dispatch.health import Signal, State, may_be_out
from kilocard.dispatch.replica import Replica
from kilocard.dispatch.stats import Stats
from kilocard.routing.load import Peers

#: how the causes end that mean that no token came
_NO_TOKEN = tuple(fault.value for fault in ev.HANGS)


def load(fleet: Fleet, replica: Replica, event: ev.PeerLoad) -> bool:
    """True: the replica can take requests and could not before."""
    now, _, *counts, share = event
    replica.share = share
    replica.shared(now, Peers(*counts))
    return fleet.relist(now, replica)


def ejected(fleet: Fleet, replica: Replica, event: ev.PeerEjected, rng: Random, stats: Stats) -> None:
    """Taken out here too. Where too few others are left, we see for ourselves; we probe for ourselves in any case."""
    health = replica.health
    pool = replica.pool
    if replica.draining or health.state is not State.READY:
        return
    if pool.out + 1 > may_be_out(pool.members, pool.spec.eject.max_share):
        return
    health.back_off(event.now, pool.spec.eject, rng)
    fleet.shift(replica, Signal.EJECT)
    health.cause = f"{event.cause} (another worker)"
    health.hung = event.cause.endswith(_NO_TOKEN)
    health.hearsay = True
    stats.ejections["peer"] += 1
    fleet.relist(event.now, replica)
