"""One replica's place on the cluster as a pure state machine: events in, instructions out, `now` in every event.

    pending ── placed ──► starting ── the host speaks ──► hosted (states of the engine's own life)
       ▲                      │                              │
       └── back-off ◄─ restarting / crash_loop ◄─ host gone ─┘          asked to stop ──► stopping ──► stopped

The engine's own exits are not seen here: the host (an actor) starts it again by itself. What is seen: no room, hosts
that can't start, hosts and nodes that are gone. The back-off is the engine's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, assert_never

from kilocard.backends.backoff import Backoff
from kilocard.backends.base import ReplicaState
from kilocard.core.replica import Change, Found, Leaving, Lost
from kilocard.spec.model import StartSpec

S = ReplicaState
#: from asking the host to stop its engine to taking the place away from under both: more than the engine's own
#: time from SIGTERM to SIGKILL
STOP_SECONDS = 20.0


class Begin(NamedTuple):
    now: float


class Adopted(NamedTuple):
    """A host of ours was found running."""

    now: float


class Waits(NamedTuple):
    """No room so far."""

    now: float
    reason: str


class Placed(NamedTuple):
    now: float


class Heard(NamedTuple):
    """The host tells the state of its engine's life, and what it announced since it was heard last."""

    now: float
    state: ReplicaState
    news: Sequence[Change] = ()


class HostGone(NamedTuple):
    """The place or the host could not be made, or is no more."""

    now: float
    reason: str


class End(NamedTuple):
    """`drain`: running requests may finish."""

    now: float
    reason: str
    drain: bool


class Tick(NamedTuple):
    now: float


Event = Begin | Adopted | Waits | Placed | Heard | HostGone | End | Tick


class Reserve(NamedTuple):
    """Ask for a place. Answer: Waits (any number), then Placed; or HostGone."""


class StartHost(NamedTuple):
    """Answer: Heard (any number); HostGone at its end."""


class TellHost(NamedTuple):
    reason: str
    drain: bool


class Release(NamedTuple):
    """Host and place are to go. No answer is awaited."""


class Announce(NamedTuple):
    change: Change


Instruction = Reserve | StartHost | TellHost | Release | Announce


@dataclass(frozen=True, slots=True)
class Ending:
    """It was asked to end. `drain`: running requests may finish."""

    reason: str
    drain: bool


class Berth:
    """Feed `on`, perform what it returns in order, and send Tick at `deadline`."""

    def __init__(self, replica: str, start: StartSpec, now: float) -> None:
        self.replica = replica
        self.state = S.STOPPED
        self.since = now
        self.reason = ""
        #: places after the first one
        self.moves = -1
        self.deadline: float | None = None
        #: the engine's own life is to be shown instead of `state`
        self.hosted = False
        self._backoff = Backoff(start)
        self._host = False  # from StartHost until Release
        self._place = False  # from Reserve until Release
        self._ready_at: float | None = None
        self._told: type[Change] = Lost  # the last that was announced
        self._ending: Ending | None = None
        self._trouble = ""  # why the last place was lost; kept until the next one serves

    @property
    def ending(self) -> Ending | None:
        """Why and how it is to end; None: it is not."""
        return self._ending

    def on(self, event: Event) -> Sequence[Instruction]:
        match event:
            case Begin():
                return self._begin(event.now)
            case Adopted():
                self.moves, self._place, self._host = 0, True, True
                self._enter(S.STARTING, event.now, "", None)
                return []
            case Waits():
                if self.state is S.PENDING:
                    self._explain(event.reason)
                return []
            case Placed():
                return self._placed(event.now)
            case Heard():
                return self._heard(event)
            case HostGone():
                return self._gone(event.now, event.reason)
            case End():
                return self._end(event)
            case Tick():
                return self._tick(event.now)
            case _:  # pragma: no cover
                assert_never(event)

    def _begin(self, now: float) -> list[Instruction]:
        if self.state is not S.STOPPED or self._ending is not None:
            return []
        return self._reserve(now)

    def _reserve(self, now: float) -> list[Instruction]:
        self.moves += 1
        self._place, self._ready_at = True, None
        self._enter(S.PENDING, now, "", None)
        self._explain("")
        return [Reserve()]

    def _placed(self, now: float) -> list[Instruction]:
        if self.state is not S.PENDING:
            return []
        self._host = True
        self._enter(S.STARTING, now, "", None)
        self._explain("")
        return [StartHost()]

    def _heard(self, event: Heard) -> list[Instruction]:
        if not self._host:
            return []
        told = [self._announce(change) for change in event.news]
        self.hosted = True
        if event.state is S.READY:
            self._trouble = ""
            if self._ready_at is None:
                self._ready_at = event.now
        if event.state is not S.STOPPED:
            return [one for one in told if one is not None]
        reason = self._ending.reason if self._ending is not None else "its host stopped it"
        return [*(one for one in told if one is not None), *self._finish(event.now, reason)]

    def _gone(self, now: float, reason: str) -> list[Instruction]:
        if not self._place:
            return []
        if self._ending is not None:
            return self._finish(now, f"{self._ending.reason}; meanwhile: {reason}")
        self._release()
        wait = self._backoff.failed(0.0 if self._ready_at is None else now - self._ready_at)
        self._trouble = reason if wait.loop is None else f"crash loop, {wait.loop} quick failures: {reason}"
        self._enter(S.RESTARTING if wait.loop is None else S.CRASH_LOOP, now, self._trouble, now + wait.seconds)
        return [Release(), *self._lost(reason)]

    def _end(self, event: End) -> list[Instruction]:
        if self.state is S.STOPPED and not self._place:
            if self._ending is None:
                self._ending = Ending(event.reason, event.drain)
            return []
        if self._ending is not None and (event.drain or not self._ending.drain):
            return []  # it is being done already
        self._ending = Ending(event.reason, event.drain)
        if not self._host:
            return self._finish(event.now, event.reason)
        if not event.drain:
            self.deadline = event.now + STOP_SECONDS
        return [TellHost(event.reason, event.drain)]

    def _tick(self, now: float) -> list[Instruction]:
        if self.deadline is None or now < self.deadline:
            return []
        self.deadline = None
        if self._ending is not None:
            reason = f"{self._ending.reason}; its host did not answer"
            return self._finish(now, reason) if self._place else []
        return self._reserve(now) if self.state in (S.RESTARTING, S.CRASH_LOOP) else []

    def _finish(self, now: float, reason: str) -> list[Instruction]:
        had_place = self._place
        self._release()
        self._enter(S.STOPPED, now, reason, None)
        release: list[Instruction] = [Release()] if had_place else []
        return [*release, *self._lost(reason)]

    def _release(self) -> None:
        self._place = self._host = self.hosted = False

    def _announce(self, change: Change) -> Instruction | None:
        """What the host announced, unless it was said already (a new controller hears some of it again)."""
        if type(change) is self._told and not isinstance(change, Found):
            return None
        if isinstance(change, Leaving) and self._told is Lost:
            return None
        self._told = type(change)
        return Announce(change)

    def _lost(self, reason: str) -> list[Instruction]:
        told = self._announce(Lost(self.replica, reason))
        return [] if told is None else [told]

    def _explain(self, text: str) -> None:
        before = f"last time: {self._trouble}" if self._trouble else ""
        self.reason = "; ".join(part for part in (text, before) if part)

    def _enter(self, state: ReplicaState, now: float, reason: str, deadline: float | None) -> None:
        if state is not self.state:
            self.state, self.since = state, now
        self.reason, self.deadline = reason, deadline
