"""News of replicas: they come, drain, go, are read and probed."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from kilocard.dispatch import peers
from kilocard.dispatch.events import (
    PeerConvicted,
    PeerEjected,
    PeerLoad,
    Probed,
    ReplicaDraining,
    ReplicaGone,
    ReplicaUp,
    Scraped,
)
from kilocard.dispatch.fleet import Fleet
from kilocard.dispatch.health import State
from kilocard.dispatch.instructions import Drained, Instruction
from kilocard.dispatch.quarantine import Quarantine
from kilocard.dispatch.stats import Stats
from kilocard.dispatch.suspicion import Conviction
from kilocard.dispatch.waiting import WaitingRoom

NOTHING: tuple[Instruction, ...] = ()


class Membership:
    """The dispatcher's half that hears of replicas; requests that waited for such news go on."""

    def __init__(self, fleet: Fleet, room: WaitingRoom, quarantine: Quarantine, stats: Stats, rng: Random) -> None:
        self._fleet = fleet
        self._replicas = fleet.replicas
        self._room = room
        self._quarantine = quarantine
        self._stats = stats
        self._rng = rng

    def up(self, event: ReplicaUp) -> Sequence[Instruction]:
        now, id, pool_name = event
        replica = self._fleet.up(now, id, pool_name)
        if replica is not None and self._room.count:
            return self._room.release(now, replica.pool)
        return NOTHING

    def draining(self, event: ReplicaDraining) -> Sequence[Instruction]:
        replica = self._fleet.drain(event.now, event.replica)
        if replica is None:
            return NOTHING
        out: list[Instruction] = [] if replica.in_flight else [Drained(replica.id)]
        if self._room.count:
            out.extend(self._room.release(event.now, replica.pool))
        return out

    def gone(self, event: ReplicaGone) -> Sequence[Instruction]:
        replica = self._fleet.gone(event.now, event.replica)
        verdict = NOTHING
        if replica is not None and not replica.draining:
            verdict = self._quarantine.died(event.now, event.replica)
        if replica is not None and self._room.count:
            return (*verdict, *self._room.release(event.now, replica.pool))
        return verdict

    def scraped(self, event: Scraped) -> Sequence[Instruction]:
        now, id, sample = event
        replica = self._replicas.get(id)
        if replica is None:
            self._stats.late_events += 1
            return NOTHING
        if sample is None:
            self._stats.scrapes_failed += 1
            return NOTHING
        if self._quarantine.incidents:
            self._quarantine.lives(now, id, proof=False)
        if self._fleet.scraped(now, replica, sample) and self._room.count:
            return self._room.release(now, replica.pool)
        return NOTHING

    def peer_load(self, event: PeerLoad) -> Sequence[Instruction]:
        replica = self._replicas.get(event.replica)
        if replica is None:
            self._stats.late_events += 1
        elif peers.load(self._fleet, replica, event) and self._room.count:
            return self._room.release(event.now, replica.pool)
        return NOTHING

    def peer_ejected(self, event: PeerEjected) -> Sequence[Instruction]:
        replica = self._replicas.get(event.replica)
        if replica is None:
            self._stats.late_events += 1
        else:
            peers.ejected(self._fleet, replica, event, self._rng, self._stats)
        return NOTHING

    def peer_convicted(self, event: PeerConvicted) -> Sequence[Instruction]:
        now, fingerprint, model, replicas, ttl = event
        self._quarantine.told(Conviction(fingerprint, model, replicas, now, now + ttl))
        return NOTHING

    def probed(self, event: Probed) -> Sequence[Instruction]:
        now, id, ok = event
        verdict = self._quarantine.probed(now, id, ok)
        replica = self._replicas.get(id)
        if replica is None or replica.draining or replica.health.state is not State.PROBING:
            self._stats.late_events += verdict is None
            return verdict or NOTHING
        self._fleet.probed(now, replica, ok)
        if self._fleet.relist(now, replica) and self._room.count:
            return (*(verdict or ()), *self._room.release(now, replica.pool))
        return verdict or NOTHING
