"""One attempt: choose a replica, count the request there, say so."""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from kilocard.core.decision import Decision
from kilocard.core.errors import KilocardError
from kilocard.dispatch.fleet import Fleet
from kilocard.dispatch.health import Signal, State
from kilocard.dispatch.instructions import Refuse, Send
from kilocard.dispatch.quarantine import Quarantine
from kilocard.dispatch.request import LiveRequest
from kilocard.dispatch.stats import Stats
from kilocard.spec.vocabulary import READS_PROMPTS

#: Send(…) by way of its own __new__ costs twice as much, and there is one for each request
_new: Final = tuple.__new__


class Placer:
    """Turns a request into a Send or a Refuse, and counts both."""

    def __init__(self, fleet: Fleet, quarantine: Quarantine, stats: Stats) -> None:
        self._fleet = fleet
        self._quarantine = quarantine
        self._stats = stats
        self._replicas = fleet.replicas

    def place(self, now: float, request: LiveRequest) -> Send | None:
        """Send the request to a replica that it has not failed on, if one is free."""
        route = request.route
        mark = request.mark
        tried: Container[str] = request.tried
        if mark is not None:
            barred = self._quarantine.barred(now, request, mark)
            if barred is None:
                return None
            tried = barred
        prefix = request.asked[11]
        decision = route.policy.choose(tried, prefix)
        if decision is None:
            for other in request.model.routes:
                if other is not route and (decision := other.policy.choose(tried, prefix)) is not None:
                    decision = Decision(decision.target, other.spilled, decision.score, decision.cached)
                    break
            else:
                return None
        replica = self._replicas[decision[0]]
        request.replica = replica
        request.pending = True
        request.sent_at = now
        attempt = request.attempts = request.attempts + 1
        if prefix is not None and route.policy.name in READS_PROMPTS:  # others are told for the record's sake
            self._count_cached(request, prefix.tokens, decision.cached)
        replica.begin(request.work, request.output)
        if mark is not None:
            self._quarantine.sent(now, request, mark, replica)
        pool = replica.pool
        if replica.in_flight >= replica.limit or replica.waiting >= replica.trip:
            if replica.health.state is State.HALF_OPEN:
                self._fleet.shift(replica, Signal.TRIAL_SENT)
                request.trial = True
            self._fleet.relist(now, replica)
        else:
            for policy in pool.policies:
                policy.update(replica)
        self._stats.decisions[decision[1]] += 1
        return _new(Send, (request.id, attempt, replica.id, pool.name, decision))

    def _count_cached(self, request: LiveRequest, tokens: int, cached: int) -> None:
        """What is cached there need not be computed, so it is no load."""
        replica = request.replica
        assert replica is not None
        request.work = work = max(0, request.prompt - cached)
        request.ahead = 0 if replica.waiting else replica.prefill + work
        counts = self._stats.prefixes[request.model.spec.name]
        counts[0] += tokens
        counts[1] += cached

    def untried(self, request: LiveRequest, members: int) -> bool:
        """Whether a replica exists that it has not failed on, free or not."""
        failed_on = 0
        for id in request.tried:
            replica = self._replicas.get(id)
            if replica is not None and not replica.draining and request.model in replica.pool.models:
                failed_on += 1
        return members > failed_on

    def refuse(self, id: int, error: KilocardError) -> Refuse:
        self._stats.refusals[error.code] += 1
        return Refuse(id, error)
