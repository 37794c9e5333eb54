"""One gateway: drives the production dispatcher as gateway/plane.py does, with an engine model behind each Send."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Protocol

from kilocard.core.errors import KilocardError
from kilocard.core.load import LoadSample
from kilocard.dispatch import events as ev
from kilocard.dispatch import instructions as ins
from kilocard.dispatch.dispatcher import Dispatcher
from kilocard.dispatch.events import Event, Fault
from kilocard.dispatch.instructions import Instruction
from kilocard.sim.asking import Asking
from kilocard.sim.flight import Attempt, Flight
from kilocard.sim.kernel import Kernel
from kilocard.sim.scenario import TICK_S, Scenario
from kilocard.sim.server import Server
from kilocard.workload.request import WorkloadRequest

#: the engine's answer to a request that is longer than it can take
TOO_LONG = 400
#: timeouts are looked at so often, as the gateway's own timers are no finer than they need be
WATCH_S = 1.0
SENDS = (ins.Send, ins.Hedge)

Record = Callable[[Event, Sequence[Instruction]], None]


class Results(Protocol):
    """Where a request's fate is told. Times are those of the client."""

    def sent(self, flight: Flight, attempt: int) -> None: ...
    def first(self, now: float, flight: Flight) -> None: ...
    def finished(self, now: float, flight: Flight, server: Server) -> None: ...
    def too_long(self, now: float, flight: Flight) -> None: ...
    def refused(self, now: float, flight: Flight, error: KilocardError) -> None: ...
    def cancelled(self, now: float, flight: Flight) -> None: ...


class Gateway:
    """`servers` is the cluster's table of replicas."""

    def __init__(
        self,
        scenario: Scenario,
        rng: Random,
        kernel: Kernel,
        servers: Mapping[str, Server],
        results: Results,
        drained: Callable[[float, str], None],
        record: Record | None = None,
    ) -> None:
        self._scenario = scenario
        self._kernel = kernel
        self._servers = servers
        self._results = results
        self._drained = drained
        self._record = record
        self._hop = scenario.signals.hop_s
        self._asking = Asking(scenario)
        self.dispatcher = Dispatcher(
            scenario.models,
            {pool.name: pool.facts for pool in scenario.pools},
            rng,
            scrape_interval=scenario.signals.scrape_s,
        )
        self._handle = self.dispatcher.handle
        self.flights: dict[int, Flight] = {}
        self._next_watch = WATCH_S
        self._nothing_late_before = 0.0

    def tell(self, now: float, event: Event) -> None:
        answer = self._handle(event)
        if self._record is not None:
            self._record(event, answer)
        for instruction in answer:
            if isinstance(instruction, SENDS):
                self._send(now, instruction)
            elif isinstance(instruction, ins.Refuse):
                flight = self.flights.pop(instruction.request)
                self._end(now, flight)
                self._results.refused(now, flight, instruction.error)
            elif isinstance(instruction, ins.Probe):
                self._kernel.at(now + 2 * self._hop, self._probe, instruction)
            elif isinstance(instruction, ins.Drained):
                self._drained(now, instruction.replica)

    # a request's life

    def arrive(self, now: float, id: int, request: WorkloadRequest) -> None:
        flight = self.flights[id] = Flight(id, request, self, now)
        if request.cancel_after_s is not None:
            self._kernel.at(now + request.cancel_after_s, self._cancel, flight)
        self.tell(now, self._asking.event(now, id, request))

    def _send(self, now: float, send: ins.Send | ins.Hedge) -> None:
        flight = self.flights[send.request]
        attempt = Attempt(flight, self._servers[send.replica], send.attempt)
        if isinstance(send, ins.Hedge):
            flight.second = attempt
        else:
            flight.attempt = attempt
            flight.sent_at = now
        self._results.sent(flight, send.attempt)
        self._kernel.at(now + self._hop + attempt.server.pool.profile.request_s, self._enter, attempt)

    def _enter(self, now: float, attempt: Attempt) -> None:
        if attempt.over:
            return
        server, request = attempt.server, attempt.flight.request
        if not server.up:
            self._kernel.at(now + self._hop, self.cut, (attempt, Fault.CONNECT))
        elif request.input_tokens + request.output_tokens > server.longest:
            self._kernel.at(now + self._hop, self._too_long, attempt)
        else:
            server.enter(now, attempt)

    def first(self, now: float, attempt: Attempt) -> None:
        """The first token has come."""
        if attempt.over:
            return
        flight = attempt.flight
        if attempt is flight.second:
            self._cut(now, flight.attempt)
            flight.attempt, flight.second = attempt, None
            self.tell(now, ev.HedgeWon(now, flight.id))
        elif flight.second is not None:
            self._cut(now, flight.second)
            flight.second = None
        flight.content = True
        self._results.first(now, flight)
        self.tell(now, ev.FirstContent(now, flight.id))

    def finished(self, now: float, attempt: Attempt) -> None:
        """The last token has come."""
        if attempt.over:
            return
        flight = attempt.flight
        del self.flights[flight.id]
        attempt.over = True
        flight.attempt = None  # a ring of references would wait for the garbage collector
        self._results.finished(now, flight, attempt.server)
        self.tell(now, ev.Finished(now, flight.id, 200, flight.request.output_tokens))

    def _too_long(self, now: float, attempt: Attempt) -> None:
        if attempt.over:
            return
        flight = self.flights.pop(attempt.flight.id)
        self._end(now, flight)
        self._results.too_long(now, flight)
        self.tell(now, ev.Finished(now, flight.id, TOO_LONG, None))

    def _cancel(self, now: float, flight: Flight) -> None:
        if self.flights.get(flight.id) is not flight:
            return
        del self.flights[flight.id]
        self._end(now, flight)
        self._results.cancelled(now, flight)
        self.tell(now, ev.Abandoned(now, flight.id))

    def _end(self, now: float, flight: Flight) -> None:
        self._cut(now, flight.attempt)
        self._cut(now, flight.second)
        flight.attempt = flight.second = None

    def _cut(self, now: float, attempt: Attempt | None) -> None:
        """Close the connection: the engine stops a moment later."""
        if attempt is not None and not attempt.over:
            attempt.over = True
            self._kernel.at(now + self._hop, attempt.server.abort, attempt)

    # failure

    def cut(self, now: float, what: tuple[Attempt, Fault]) -> None:
        """An attempt has failed."""
        attempt, fault = what
        if attempt.over:
            return
        flight = attempt.flight
        self._cut(now, attempt)
        if attempt is flight.second:
            flight.second = None
            self.tell(now, ev.HedgeFailed(now, flight.id, fault, None, ""))
            return
        if fault is Fault.TOTAL:
            self._cut(now, flight.second)
            flight.second = None
        flight.attempt, flight.second = flight.second, None
        self.tell(now, ev.Failed(now, flight.id, fault, None, ""))

    def _watch(self, now: float) -> None:
        """The time-outs."""
        timeouts = self._scenario.timeouts
        late: list[tuple[Attempt, Fault]] = []
        for flight in self.flights.values():
            attempt = flight.attempt
            if attempt is None:
                continue
            if now >= flight.arrived_at + timeouts.total:
                late.append((attempt, Fault.TOTAL))
            elif not flight.content:
                limit = timeouts.first_token + timeouts.first_token_per_prompt_token * flight.request.input_tokens
                if now >= flight.sent_at + limit:
                    late.append((attempt, Fault.FIRST_TOKEN))
            elif (hung := attempt.server.hung_since) is not None and now >= hung + timeouts.idle:
                late.append((attempt, Fault.IDLE))
        for what in late:
            self.cut(now, what)
        self._nothing_late_before = self._next_late(now)

    def _next_late(self, now: float) -> float:
        """Nothing is late before that: neither what is under way, nor what is sent or begins to hang from now on."""
        timeouts = self._scenario.timeouts
        soonest = now + min(timeouts.total, timeouts.first_token, timeouts.idle)
        for flight in self.flights.values():
            soonest = min(soonest, flight.arrived_at + timeouts.total)
            attempt = flight.attempt
            if attempt is None:
                continue
            if not flight.content:
                limit = timeouts.first_token + timeouts.first_token_per_prompt_token * flight.request.input_tokens
                soonest = min(soonest, flight.sent_at + limit)
            if attempt.server.hung_since is not None:
                soonest = min(soonest, attempt.server.hung_since + timeouts.idle)
        return soonest

    # news

    def tick(self, now: float, _: None = None) -> None:
        if now >= self._next_watch:
            self._next_watch += WATCH_S
            if now >= self._nothing_late_before:
                self._watch(now)
        self.tell(now, ev.Tick(now))
        self._kernel.at(now + TICK_S, self.tick)

    def read(self, now: float, what: tuple[str, LoadSample | None]) -> None:
        """A metrics page has come, or has not."""
        self.tell(now, ev.Scraped(now, *what))

    def _probe(self, now: float, probe: ins.Probe) -> None:
        server = self._servers[probe.replica]
        self.tell(now, ev.Probed(now, probe.replica, server.answers(token=probe.token)))
