"""Poison requests: bodies that kill each replica they are sent to are found out, and then refused for a while.

When a replica dies, everything in flight there is suspect. The next death has to point to one body, so suspects are
kept apart:

1. A lost connection, or a 5xx, opens an **incident** on that replica and marks the bodies that failed there. A probe
   asks at once: does it live?
2. Refused, gone, or silent means **death**. Content, an answer, or a good reading means life, and the marks are taken
   back. A 5xx is a death only if connections are refused soon after (vLLM after EngineDeadError).
3. A marked body runs at most once at a time, and on a replica where no other marked body runs. Others may be there.
   Where a replica has only answered with errors so far this does not hold yet: that is common, and seldom death.
4. A body whose `deaths`th death it is, the only such one on that replica, is **convicted**. Its deaths are explained:
   whoever else was there is free. Where several could have done it nobody is convicted, and all stay marked.
5. Content clears a body that had shown none when its replica died, and a whole answer clears any body.

Only a body's fingerprint is known here: "length-hash", made by the driver when a request fails, and on arrival only for
bodies of a length in `sizes`. So traffic pays nothing while nothing is marked, and next to nothing after that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container

from kilocard.core.errors import KilocardError
from kilocard.dispatch import refusals
from kilocard.dispatch.docket import Docket
from kilocard.dispatch.events import Fault
from kilocard.dispatch.instructions import Convicted, Instruction, Probe
from kilocard.dispatch.replica import Replica
from kilocard.dispatch.request import LiveRequest
from kilocard.dispatch.stats import Stats
from kilocard.dispatch.suspicion import Conviction, Incident, Mark

NOTHING: tuple[Instruction, ...] = ()
#: after a lost connection, silence for this many seconds is death; who would be convicted by that waits so long
VERDICT = 2.5
#: after a 5xx, connections have to be refused within this many seconds, or it was none
EXIT = 5.0
#: who would be convicted by that waits for this long
LULL = 1.0
#: and the replica is asked this often, in seconds, whether it lives
ASK_AGAIN = 0.5
#: a sign of life so soon after a failure may have been on its way before it
IN_TRANSIT = 0.1
#: a marked body that has waited this long for a replica without other suspects goes where others are, once
PATIENCE = 10.0
#: and keeps others away for this many times as long as it was on the replica that died, plus 1 s, at most so long
APART, APART_MAX = 2.0, 30.0
#: a death without a body, so shortly before or after, speaks for an outage: it takes one death more to convict it
OUTAGE = 30.0
#: an acquittal is remembered so long
ACQUITTED = 60.0


class Quarantine:
    """Evidence and verdicts. `stats.deaths` and `stats.convictions` count."""

    def __init__(self, stats: Stats) -> None:
        self._stats = stats
        self._docket = Docket()
        #: lengths of the bodies that are remembered; empty: nothing to look for
        self.sizes = self._docket.sizes
        self.marks = self._docket.marks
        self.convicted = self._docket.convicted
        #: by replica: what may have happened there, until it shows life again
        self.incidents: dict[str, Incident] = {}
        #: replica → the marked body's request that keeps others away, and until when
        self._apart: dict[str, tuple[LiveRequest, float]] = {}
        self._deaths: deque[Incident] = deque(maxlen=64)

    # --- requests

    def arrived(self, now: float, request: LiveRequest, fingerprint: str) -> KilocardError | None:
        """The error for a body in quarantine; remembers if the body is marked."""
        conviction = self.convicted.get(fingerprint)
        if conviction is not None and now < conviction.until:
            conviction.refused += 1
            return refusals.poison(conviction, now)
        mark = self.marks.get(fingerprint)
        if mark is not None:
            request.mark = mark
            request.marked_at = now
        return None

    def barred(self, now: float, request: LiveRequest, mark: Mark) -> Container[str] | None:
        """Replicas that a marked request may not go to now; None: it may go nowhere."""
        if mark.conviction is not None or mark.awaits_verdict():
            return None
        if not mark.suspect:
            return request.tried
        if mark.running is not None:
            return None
        if mark.strikes < 2 and now - request.marked_at > PATIENCE:
            return request.tried
        return {*request.tried, *self._apart}

    def sent(self, now: float, request: LiveRequest, mark: Mark, replica: Replica) -> None:
        if mark.suspect:
            mark.running = request
            apart = min(APART_MAX, APART * mark.age + 1.0)
            self._apart.setdefault(replica.id, (request, now + apart))

    def left(self, request: LiveRequest, mark: Mark, replica: Replica) -> None:
        """The request is no longer on that replica."""
        if mark.running is request:
            mark.running = None
        if (apart := self._apart.get(replica.id)) is not None and apart[0] is request:
            del self._apart[replica.id]

    def answered(self, now: float, request: LiveRequest, mark: Mark, *, whole: bool) -> None:
        """Content, or the whole answer, of a marked request: enough to clear it?"""
        if mark.incidents and request.sent_at >= mark.seen_at and (whole or not mark.late):
            for incident in mark.incidents:
                incident.marks.pop(mark, None)
            mark.incidents = []
            mark.strikes = 0
            mark.age = 0.0
            mark.late = False
            mark.acquitted = True
            mark.until = now + min(ACQUITTED, mark.model.spec.quarantine.ttl)
            if request.replica is not None:
                self.left(request, mark, request.replica)

    # --- evidence

    def failed(
        self, now: float, request: LiveRequest, replica: Replica, fault: Fault, fingerprint: str
    ) -> tuple[Instruction, ...]:
        """An attempt failed. `fingerprint`: "" where the request can't have been at work there."""
        if not fingerprint or replica.draining or not request.model.spec.quarantine.deaths:
            return self.died(now, replica.id) if fault is Fault.CONNECT else NOTHING
        out = NOTHING
        incident = self.incidents.get(replica.id)
        if incident is not None and not incident.open and request.sent_at > (incident.died_at or 0.0):
            incident = None  # it had come back
        if incident is None or incident.replica is not replica:
            incident = self.incidents[replica.id] = Incident(now, replica, fault is Fault.STATUS)
            if fault is not Fault.CONNECT and not replica.gone:
                out = (Probe(replica.id, liveness=True),)
        if request.sent_at <= incident.at and not incident.explained:  # who came later did not do it
            self._suspect(now, request, fingerprint, incident)
        if fault is not Fault.STATUS:
            incident.status = False
        if incident.open:
            if fault is Fault.CONNECT or replica.gone:
                return out + self.died(now, replica.id)
            return out
        return out + self._attribute(now, incident)

    def _suspect(self, now: float, request: LiveRequest, fingerprint: str, incident: Incident) -> None:
        conviction = self.convicted.get(fingerprint)
        if conviction is not None:  # a copy that was under way already
            request.mark = Mark(fingerprint, request.model)
            request.mark.conviction = conviction
            return
        mark = self._docket.mark(fingerprint, request.model)
        mark.until = now + mark.model.spec.quarantine.ttl
        mark.request = request.id
        mark.age = max(mark.age, incident.at - request.sent_at)
        mark.late |= not request.pending
        if incident not in mark.incidents:
            counts = request.sent_at >= mark.seen_at
            mark.seen_at = now
            mark.incidents.append(incident)
            incident.marks[mark] = counts
            if not incident.open:
                mark.strikes += counts
        request.mark = mark
        request.marked_at = now

    def died(self, now: float, replica: str) -> tuple[Instruction, ...]:
        """It refuses connections, is gone, or says nothing any more."""
        incident = self.incidents.get(replica)
        if incident is None or not incident.open:
            return NOTHING
        for mark, counts in incident.marks.items():
            mark.strikes += counts
        incident.died_at = now
        self._deaths.append(incident)
        self._stats.deaths[incident.replica.pool.name] += 1
        return self._attribute(now, incident)

    def lives(self, now: float, replica: str, *, proof: bool) -> None:
        """A sign of life. `proof`: it answered a request; a server whose engine is dead can still show pages."""
        incident = self.incidents.get(replica)
        if incident is None or now <= incident.at + IN_TRANSIT:
            return
        self._lives(incident, proof)

    def probed(self, now: float, replica: str, ok: bool) -> tuple[Instruction, ...] | None:
        """What came of a Probe; None: not asked for here."""
        incident = self.incidents.get(replica)
        if incident is None:
            return None
        if not ok:
            return self.died(now, replica)
        self._lives(incident, proof=False)
        return NOTHING

    def _lives(self, incident: Incident, proof: bool) -> None:
        if incident.open:
            if incident.status and not proof:
                return
            self._take_back(incident)
        del self.incidents[incident.replica.id]

    def _take_back(self, incident: Incident) -> None:
        """It was no death."""
        for mark in list(incident.marks):
            mark.forget(incident)
            self._docket.settle(mark)
        incident.marks.clear()

    # --- verdicts

    def _attribute(self, now: float, incident: Incident) -> tuple[Instruction, ...]:
        """Whose fault was this death? Nobody's, unless one body has been there more often than all others."""
        if incident.explained:
            return NOTHING
        most = max((len(mark.incidents) for mark in incident.marks), default=0)
        first = [mark for mark in incident.marks if len(mark.incidents) == most]
        if len(first) == 1 and incident.marks[first[0]] and first[0].strikes >= self._needed(now, first[0]):
            return (self._convict(now, first[0]),)
        return NOTHING

    def _needed(self, now: float, mark: Mark) -> int:
        """Deaths that it takes."""
        pool = mark.incidents[-1].replica.pool
        outage = any(
            mark not in death.marks
            and not death.explained
            and death.replica.pool is pool
            and death.died_at is not None
            and now - death.died_at < OUTAGE
            for death in self._deaths
        )
        return mark.model.spec.quarantine.deaths + mark.acquitted + outage

    def _convict(self, now: float, mark: Mark) -> Instruction:
        spec = mark.model.spec
        replicas = tuple(incident.replica.id for incident in mark.incidents if not incident.open)
        conviction = Conviction(mark.fingerprint, spec.name, replicas, now, now + spec.quarantine.ttl)
        mark.conviction = conviction
        self._docket.convict(conviction)
        self._stats.convictions += 1
        for incident in mark.incidents:
            incident.explained = True
            for other in list(incident.marks):
                if other is not mark:
                    other.forget(incident)
                    self._docket.settle(other)
            incident.marks.clear()
        mark.incidents = []
        self._docket.drop(mark)
        return Convicted(mark.request, mark.fingerprint, spec.name, replicas, spec.quarantine.ttl)

    def told(self, conviction: Conviction) -> None:
        """Another worker has found it out."""
        if conviction.fingerprint in self.convicted:
            return
        mark = self.marks.get(conviction.fingerprint)
        if mark is not None:
            mark.conviction = conviction  # its requests that wait are refused at their next turn
            self._docket.drop(mark)
        self._docket.convict(conviction)

    # --- time

    def tick(self, now: float) -> list[Instruction]:
        """What silence proves, and what time forgets."""
        out: list[Instruction] = []
        for replica, incident in list(self.incidents.items()):
            since = now - incident.at
            if not incident.open:
                if since > EXIT + APART_MAX:
                    del self.incidents[replica]
            elif not incident.status:
                if since >= VERDICT:
                    out += self.died(now, replica)
            elif since >= EXIT:
                self._take_back(incident)
                del self.incidents[replica]
            else:
                incident.waits = since < LULL
                if now - incident.asked_at >= ASK_AGAIN:
                    incident.asked_at = now
                    out.append(Probe(replica, liveness=True))
        for replica, (request, until) in list(self._apart.items()):
            if now >= until or request.mark is None or not request.mark.suspect:
                del self._apart[replica]
        self._docket.sweep(now)
        return out
