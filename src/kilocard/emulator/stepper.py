"""One engine on the wall clock: schedules a step, waits as long as it takes, hands its tokens out.

No task and no future a step: one timer callback, which writes the step's tokens to all its streams. Timers of the
event loop are exact to about a millisecond, so each deadline is counted from the last deadline, not from the time
at which the timer came: errors don't add up. Steps shorter than the timer's grain are run together.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

from kilocard.emulator.observed import Observed
from kilocard.sim.engine import Engine, StepResult

#: Steps run in one callback before the event loop gets its turn.
BURST = 32
#: When the loop is late by more than this (seconds), the lost time is forgotten instead of being caught up with.
FORGIVE = 0.25
#: Steps due within so many seconds run at once: a timer would not come in time.
GRAIN = 0.0005


class Sink(Protocol):
    """Where a request's tokens go."""

    #: wall time of the arrival, the first admission, the first and the last token (monotonic seconds; 0: not yet)
    arrived_at: float
    admitted_at: float
    first_at: float
    last_at: float

    def emit(self, count: int) -> None: ...

    def done(self) -> None: ...


class Stepper:
    def __init__(self, engine: Engine, observed: Observed, *, speed: float = 1.0) -> None:
        self.engine = engine
        self.observed = observed
        self.speed = speed
        #: a slow replica: steps take so many times longer
        self.slowdown = 1.0
        self._loop = asyncio.get_running_loop()
        self._sinks: dict[str, Sink] = {}
        self._step: StepResult | None = None
        self._started = 0.0
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, request_id: str, prompt_tokens: int, output_tokens: int, sink: Sink) -> None:
        """Queue a request; wakes the engine. Raises EngineError if it could never run."""
        now = time.monotonic()
        sink.arrived_at = now
        self.engine.add(request_id, prompt_tokens, output_tokens, now)
        self._sinks[request_id] = sink
        if self._timer is None:
            self._deadline = now
            # In the loop's next turn, so that requests which arrive together start together.
            self._timer = self._loop.call_later(0, self._tick)

    def abort(self, request_id: str) -> None:
        """Free the request's slot and KV blocks now. Nothing happens if it is over."""
        if self._sinks.pop(request_id, None) is not None and self.engine.abort(request_id):
            self.observed.finished["abort"] += 1

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._sinks.clear()

    @property
    def requests(self) -> int:
        """Requests that are in the engine, running or waiting."""
        return len(self._sinks)

    def _tick(self) -> None:
        now = time.monotonic()
        if now - self._deadline > FORGIVE:
            self._deadline = now
        for _ in range(BURST):
            if self._step is not None:
                self._hand_out(self._step)
            self._started = self._deadline
            step = self._step = self.engine.step(self._started)
            if step is None:
                self._timer = None
                return
            for request_id in step.admitted:
                sink = self._sinks.get(request_id)
                if sink is not None:
                    # A request may arrive while a late step is being caught up with.
                    sink.admitted_at = max(self._started, sink.arrived_at)
            self._deadline += step.duration_s * self.slowdown / self.speed
            if self._deadline > now + GRAIN:
                break
        self._timer = self._loop.call_later(max(0.0, self._deadline - time.monotonic()), self._tick)

    def _hand_out(self, step: StepResult) -> None:
        observed, sinks, now = self.observed, self._sinks, self._deadline
        observed.step_tokens.observe(step.prefill_tokens + step.decode_seqs)
        # Streams that decode side by side have the same gap: count them together.
        gap, same = 0.0, 0
        for request_id, count in step.emitted:
            sink = sinks.get(request_id)
            if sink is None:
                continue  # aborted in this step
            if sink.last_at:
                if now - sink.last_at != gap:
                    if same:
                        observed.itl.observe(gap, same)
                    gap, same = now - sink.last_at, 0
                same += count
            else:
                sink.first_at = now
                observed.ttft.observe(max(0.0, now - sink.arrived_at))
                observed.queue.observe(sink.admitted_at - sink.arrived_at)
                observed.prefill.observe(max(0.0, now - sink.admitted_at))
            sink.last_at = now
            sink.emit(count)
        if same:
            observed.itl.observe(gap, same)
        for request_id in step.finished:
            sink = sinks.pop(request_id, None)
            if sink is not None:
                observed.e2e.observe(max(0.0, now - sink.arrived_at))
                observed.inference.observe(max(0.0, now - sink.admitted_at))
                observed.decode.observe(now - sink.first_at)
                sink.done()
