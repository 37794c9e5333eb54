"""vLLM's V1 scheduler as a model: continuous batching, chunked prefill, paged KV, prefix cache, preemption.

Two ways to drive it. On an outside clock, one step at a time (the emulator):

    engine.add("r1", prompt_tokens=100, output_tokens=50, now=t)
    while (step := engine.step(t)) is not None:
        t += step.duration_s            # the step's tokens come out now

On its own clock, from event to event (the simulator):

    for event in engine.advance(now):   # first tokens, last tokens and preemptions up to now
        ...
    engine.add("r2", 500, 200, now)     # always after advance(now); abort() likewise
    wake_at = engine.next_at()          # nothing comes out before; call it when all that happens at `now` is said

next_at() may be early (then advance gives nothing, and next_at is asked again), never late; an add or abort makes it
out of date. It also starts the step that begins now, so who is added later at the same instant waits for the next.

This class runs step after step and is the reference. FastEngine (fast.py) has the same interface and gives the same
events at the same times, to the last bit, and jumps over steps in which nothing changes.
"""

from __future__ import annotations

import math
from typing import Unpack

from kilocard.perf.profile import Profile
from kilocard.sim.limits import Limits
from kilocard.sim.scheduler import Scheduler
from kilocard.sim.sequence import Sequence
from kilocard.sim.step import SECOND, Counters, Event, StepResult, Stretch

#: Event(…) by way of its own __new__ costs twice as much, and there are two for each request
_new = tuple.__new__

__all__ = ["Counters", "Engine", "Event", "StepResult", "Stretch"]


class Engine(Scheduler):
    """`record`: keep `stretches`, from which the times of all tokens can be had."""

    def __init__(self, profile: Profile, *, record: bool = False, **limits: Unpack[Limits]) -> None:
        super().__init__(profile, **limits)
        self.stretches: list[Stretch] | None = [] if record else None
        #: end of the last step, which is the start of the next, in picoseconds and in seconds
        self._now = 0
        self._now_s = 0.0
        #: that end is still to come
        self._busy = False
        self._clocked = False
        self._events: list[Event] = []
        self._async = limits.get("async_scheduling", False)

    def _enqueue(self, sequence: Sequence) -> None:
        now = sequence.arrived_at
        if self._clocked and now > self._now_s:
            if not self.idle:
                raise AssertionError(f"advance({now}) comes before what happens at {now}")
            self._set_now(round(now * SECOND))
        if self.idle:
            self._late = self.pool.reserved = 0
        if self._async:
            # Where somebody runs, the next step is scheduled already.
            sequence.ready = self.counters.steps + bool(self._busy or self._running)
        super()._enqueue(sequence)

    def settle(self) -> None:
        if not self._async or not self._leaving:
            super().settle()
            return
        free, self._late = self.pool.free, len(self._leaving)
        super().settle()
        self.pool.reserved = self.pool.free - free

    def advance(self, until: float) -> list[Event]:
        """Run all steps that start before `until`; what has come out by then, in order of time."""
        self._clocked = True
        while True:
            if self._busy:
                if self._now_s > until:
                    break
                self._end_step()
            if self._now_s >= until or (not self._running and not self._waiting.line):
                break
            self._commit(until)
        events = self._events
        if events:
            self._events = []
        return events

    def next_at(self) -> float:
        """When the next event may come, in seconds; infinity when idle. Starts the step that begins now."""
        self._clocked = True
        if not self._busy:
            if not self._running and not self._waiting.line:
                return math.inf
            self._commit(self._now_s)
        return self._now_s

    def _commit(self, until: float) -> None:
        """Start the step that begins now. (Or, in a faster engine: all up to the first that begins at `until`.)"""
        step = self._step(self._now_s)
        for request_id in step.preempted:
            self._events.append(Event(self._now_s, "preempted", request_id, self._sequences[request_id].tokens))
        if self.stretches is not None:
            self.stretches.append(Stretch(self._now, 1, step.duration_ps, 0, len(step.emitted)))
        self._set_now(self._now + step.duration_ps)
        self._begun_step()

    def _begun_step(self) -> None:
        self._busy = True
        self._late = self.pool.reserved = 0

    def _set_now(self, now: int) -> None:
        self._now = now
        self._now_s = now / SECOND

    def _end_step(self) -> None:
        self._busy = False
        if not self._firsts and not self._leaving:
            return
        at_s, events = self._now_s, self._events
        for sequence in self._firsts:
            if sequence.running:  # else it was aborted meanwhile
                events.append(_new(Event, (at_s, "first", sequence.request_id, sequence.cached)))
        for sequence in self._leaving:
            events.append(_new(Event, (at_s, "finished", sequence.request_id, sequence.output)))
        self.settle()
