"""One replica's life as a pure state machine: events in, instructions out, `now` in every event.

    starting ──► loading ──► ready ──► draining ──► stopping ──► stopped
        │           │          │
        └───────────┴──────────┴─ exit ─► restarting ─ back-off ─► starting
                                              └─ again and again ─► crash_loop ─ slow retries ─► starting

What kills a replica that nobody asked to stop: only that it never became ready in time. A slow or missing health
answer never does: a busy engine is slow to answer, and killing it makes a full queue an outage. A process that
answers "not ready" leaves the routing and comes back by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from kilocard.backends.backoff import Backoff
from kilocard.backends.base import ReplicaState, StartPhases
from kilocard.backends.life_events import (
    AnnounceFound,
    AnnounceLeaving,
    AnnounceLost,
    Begin,
    Drain,
    Event,
    Exited,
    Health,
    Hint,
    Idle,
    Instruction,
    Kill,
    Probed,
    Spawn,
    Spawned,
    SpawnFailed,
    Stop,
    Terminate,
    Tick,
)
from kilocard.spec.model import StartSpec

#: from SIGTERM to SIGKILL
STOP_SECONDS = 10.0
#: explicit "not ready" answers in a row before a ready replica leaves the routing (one may be a hiccup)
UNREADY_ANSWERS = 3


S = ReplicaState


class Life:
    """The state of one replica. Feed `on`, perform what it returns in order, and send Tick at `deadline`."""

    def __init__(self, start: StartSpec, drain_grace: float, now: float) -> None:
        self._start = start
        self._drain_grace = drain_grace
        self.state = S.STOPPED
        self.since = now
        self.reason = ""
        #: starts after the first one
        self.restarts = -1
        self.phases = StartPhases()
        #: when Tick is due; None: nothing is timed
        self.deadline: float | None = None
        self._process = False  # from Spawn until Exited or SpawnFailed
        self._running = False  # from Spawned until Exited
        self._announced = False  # Found was reported and neither Leaving nor Lost since
        self._leaving = False  # Leaving was reported since the last Found
        self._at_rest = False  # it left the routing and its last request has ended
        self._backoff = Backoff(start)
        self._unready = 0
        self._began = now
        self._alive_at: float | None = None
        self._ready_at: float | None = None
        self._answers = ""  # what the last probe that was not ready saw
        self._log_says = ""
        self._trouble = ""  # why the last start failed; kept while it is tried again
        self._verdict = ""  # why we ended a process that did not become ready in time

    @property
    def has_process(self) -> bool:
        return self._process

    def on(self, event: Event) -> Sequence[Instruction]:
        match event:
            case Begin():
                return self._begin(event.now)
            case Spawned():
                return self._spawned(event.now)
            case SpawnFailed():
                return self._ended(event.now, event.reason)
            case Hint():
                return self._hint(event.now, event.text)
            case Probed():
                return self._probed(event)
            case Exited():
                return self._ended(event.now, event.reason)
            case Drain():
                return self._drain(event.now, event.reason)
            case Idle():
                return self._idle(event.now)
            case Stop():
                return self._stop(event.now, event.reason)
            case Tick():
                return self._tick(event.now)
            case _:  # pragma: no cover
                assert_never(event)

    # ---- starting

    def _begin(self, now: float) -> list[Instruction]:
        if self.state is not S.STOPPED or self._process:
            return []
        self._backoff.reset()
        self._trouble = ""
        return self._spawn(now)

    def _spawn(self, now: float) -> list[Instruction]:
        self.restarts += 1
        self.phases = StartPhases()
        self._process = True
        self._began, self._alive_at, self._ready_at, self._unready, self._verdict = now, None, None, 0, ""
        self._enter(S.STARTING, now, "", now + self._start.timeout)
        self._answers = self._log_says = ""
        self._explain()
        return [Spawn()]

    def _spawned(self, now: float) -> list[Instruction]:
        self._running = True
        if self.state is S.STOPPING or self._verdict:  # we changed our mind while the process was being made
            self.deadline = now + STOP_SECONDS
            return [Terminate()]
        if self.state is S.STARTING:
            self._began = now
            self.deadline = now + self._start.timeout
        return []

    def _hint(self, now: float, text: str) -> list[Instruction]:
        if self.state in (S.STARTING, S.LOADING) and not self._verdict:
            self._alive(now)
            self._log_says = text
            self._explain()
        return []

    def _explain(self) -> None:
        """Why it is not ready: what it answers, what its log says, and why the start before failed."""
        says = f"log: {self._log_says}" if self._log_says else ""
        before = f"last time: {self._trouble}" if self._trouble else ""
        self.reason = "; ".join(part for part in (self._answers, says, before) if part)

    def _alive(self, now: float) -> None:
        if self.state is S.STARTING:
            self._alive_at = now
            self.phases = StartPhases(starting=now - self._began)
            self._enter(S.LOADING, now, self.reason, self.deadline)

    # ---- health

    def _probed(self, event: Probed) -> list[Instruction]:
        if not self._running or self._verdict or self.state not in (S.STARTING, S.LOADING, S.READY):
            return []
        now, health = event.now, event.health
        if health is Health.READY:
            return self._serves(now)
        if self.state is S.READY:
            return self._doubted(now, health, event.detail)
        if health is not Health.NO_ANSWER:
            self._alive(now)
            self._answers = event.detail
            self._explain()
            if self._ready_at is not None and health is Health.SLOW:
                # it served before, and busy is not dead: this alone must never lead to a kill
                self.deadline = now + self._start.timeout
        return []

    def _serves(self, now: float) -> list[Instruction]:
        self._unready = 0
        if self.state is S.READY:
            self.reason = ""
            return []
        if self._ready_at is None:
            self._ready_at = now
            alive = now if self._alive_at is None else self._alive_at
            self.phases = StartPhases(starting=alive - self._began, loading=now - alive)
        self._enter(S.READY, now, "", None)
        self._announced, self._leaving, self._at_rest = True, False, False
        return [AnnounceFound()]

    def _doubted(self, now: float, health: Health, detail: str) -> list[Instruction]:
        if health is Health.SLOW:
            self._unready = 0
            self.reason = f"busy: {detail}"
            return []
        self._unready += 1
        self.reason = detail
        if self._unready < UNREADY_ANSWERS:
            return []
        self._enter(S.LOADING, now, detail, now + self._start.timeout)
        self._answers, self._log_says, self._trouble = detail, "", ""
        return self._leave(f"it says that it can't serve: {detail}")

    # ---- ending

    def _drain(self, now: float, reason: str) -> list[Instruction]:
        if self.state in (S.DRAINING, S.STOPPING, S.STOPPED):
            return []
        if self._at_rest or not (self._announced or self._leaving):  # it has no requests to finish
            return self._stop(now, reason)
        self._enter(S.DRAINING, now, reason, now + self._drain_grace)
        return self._leave(reason)

    def _idle(self, now: float) -> list[Instruction]:
        if self.state is S.DRAINING:
            return self._terminate(now, self.reason)
        self._at_rest = self._leaving  # may be drained later: then there is nothing to wait for
        return []

    def _stop(self, now: float, reason: str) -> list[Instruction]:
        if self.state in (S.STOPPING, S.STOPPED):
            return []
        if not self._process:
            self._enter(S.STOPPED, now, reason, None)
            return self._lost(reason)
        return [*self._leave(reason), *self._terminate(now, reason)]

    def _terminate(self, now: float, reason: str) -> list[Instruction]:
        self._enter(S.STOPPING, now, reason, now + STOP_SECONDS)
        return [Terminate()] if self._running else []

    def _ended(self, now: float, reason: str) -> list[Instruction]:
        if not self._process:
            return []
        self._process = self._running = False
        if self.state in (S.DRAINING, S.STOPPING):
            why = self.reason if self.state is S.STOPPING else f"{self.reason}; while draining: {reason}"
            self._enter(S.STOPPED, now, why, None)
            return self._lost(why)
        reason = self._verdict or reason
        served = 0.0 if self._ready_at is None else now - self._ready_at
        wait = self._backoff.failed(served)
        self._trouble = reason if wait.loop is None else f"crash loop, {wait.loop} quick failures: {reason}"
        self._enter(S.RESTARTING if wait.loop is None else S.CRASH_LOOP, now, self._trouble, now + wait.seconds)
        return self._lost(reason)

    def _tick(self, now: float) -> list[Instruction]:
        if self.deadline is None or now < self.deadline:
            return []
        self.deadline = None
        match self.state:
            case S.RESTARTING | S.CRASH_LOOP:
                return self._spawn(now)
            case S.DRAINING:
                return self._terminate(now, f"{self.reason}; not idle after {self._drain_grace:g} s")
            case S.STARTING | S.LOADING if not self._verdict:
                return self._give_up(now)
            case S.STARTING | S.LOADING | S.STOPPING if self._running:
                return [Kill()]
        return []

    def _give_up(self, now: float) -> list[Instruction]:
        again = " again" if self._ready_at is not None else ""
        last = f"; last news: {self.reason}" if self.reason else ""
        self._verdict = f"not ready{again} after {self._start.timeout:g} s (start.timeout){last}"
        self.reason = self._verdict
        self.deadline = now + STOP_SECONDS
        return [Terminate()] if self._running else []

    # ---- saying so

    def _leave(self, reason: str) -> list[Instruction]:
        if not self._announced:
            return []
        self._announced, self._leaving = False, True
        return [AnnounceLeaving(reason)]

    def _lost(self, reason: str) -> list[Instruction]:
        if not (self._announced or self._leaving):
            return []  # nobody was ever told of it
        self._announced = self._leaving = self._at_rest = False
        return [AnnounceLost(reason)]

    def _enter(self, state: ReplicaState, now: float, reason: str, deadline: float | None) -> None:
        if state is not self.state:
            self.state, self.since = state, now
        self.reason, self.deadline = reason, deadline
