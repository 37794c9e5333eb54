"""A trial on virtual time: replicas of one profile behind one queue, Poisson arrivals, percentiles of what came out.

The closed form gives means; queues make tails. The engine model is the one that the emulator runs, in its form that
jumps (sim.fast). Each request goes to the replica with the fewest in flight, which is what the gateway's queue_depth
does when its view is fresh. A trial is bounded: a large cluster is tried with fewer replicas at the same rate each, and
says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import islice
from random import Random

from kilocard.core.latency import tpot_s
from kilocard.core.statistics import mean, percentiles
from kilocard.perf.profile import Profile
from kilocard.sim.fast import FastEngine
from kilocard.sim.step import SECOND, Stretch
from kilocard.workload.arrivals import Poisson
from kilocard.workload.generate import generate
from kilocard.workload.lengths import Length
from kilocard.workload.mixes import Mix
from kilocard.workload.request import WorkloadRequest

#: output tokens that one trial makes at most, about a second of CPU
TOKENS = 800_000
#: requests: at least so many, or a 95th percentile is not worth its name; usually; at most
FEWEST, USUAL, MOST = 200, 600, 3000
#: of the arrivals, left out: the start, while the batch fills, and the end, while nothing follows
_WARM_UP, _END = 0.3, 0.9


@dataclass(frozen=True, slots=True)
class Tail:
    """Seconds."""

    mean: float
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True)
class Trial:
    ttft_s: Tail
    #: None where outputs have one token
    tpot_s: Tail | None
    e2e_s: Tail
    #: all replicas of the trial together
    output_tokens_per_s: float
    #: requests that the percentiles are of
    requests: int
    #: replicas that were tried, of how many that were planned
    replicas: int
    of_replicas: int
    #: how many in flight a replica had on average
    concurrency: float
    preemptions: int
    #: requests that no replica could ever hold
    refused: int


@dataclass(slots=True)
class _Flight:
    request: WorkloadRequest
    #: arrived while the trial is measured
    measured: bool
    first_s: float | None = None
    last_s: float = 0.0


def trial(
    profile: Profile,
    *,
    replicas: int,
    rate_per_s: float,
    inputs: Length,
    outputs: Length,
    streams: float,
    rng: Random,
) -> Trial:
    """`rate_per_s` is the whole cluster's; `streams` how many a replica should run at once."""
    most = max(FEWEST, min(MOST, int(TOKENS / max(1.0, outputs.mean))))
    batch = max(1.0, streams)
    # Five rounds of a batch for each replica: fewer replicas where that would be more than the bound.
    tried = max(1, min(replicas, int(most / (5 * batch))))
    count = min(most, max(USUAL, int(8 * batch * tried)))
    arrivals = Poisson(rate_per_s * tried / replicas)
    requests = list(islice(generate(arrivals, Mix.of(inputs, outputs), rng), count))
    return run_trial(profile, requests, replicas=tried, of_replicas=replicas)


def run_trial(
    profile: Profile, requests: Sequence[WorkloadRequest], *, replicas: int, of_replicas: int | None = None
) -> Trial:
    """Play the requests, in order of at_s. Raises ValueError where not one of them could be served."""
    run = _Run(profile, requests, replicas)
    run.play()
    done = run.done
    if not done:
        raise ValueError("no request of the trial could be served")
    length = run.end - run.begin
    return Trial(
        ttft_s=_tail([(flight.first_s or 0.0) - flight.request.at_s for flight in done]),
        tpot_s=_tpot(done),
        e2e_s=_tail([flight.last_s - flight.request.at_s for flight in done]),
        output_tokens_per_s=run.tokens / length,
        requests=len(done),
        replicas=replicas,
        of_replicas=of_replicas or replicas,
        # Little: time in the system × arrivals
        concurrency=sum(flight.last_s - flight.request.at_s for flight in done) / length / replicas,
        preemptions=sum(engine.counters.preempted for engine in run.engines),
        refused=run.refused,
    )


class _Run:
    """The events in order of time: an arrival, or something that comes out of an engine."""

    def __init__(self, profile: Profile, requests: Sequence[WorkloadRequest], replicas: int) -> None:
        self.requests = requests
        self.engines = [FastEngine(profile, record=True) for _ in range(replicas)]
        self.begin = requests[int(len(requests) * _WARM_UP)].at_s
        self.end = requests[min(len(requests) - 1, int(len(requests) * _END))].at_s
        self.done: list[_Flight] = []
        self.refused = 0
        self._in_flight = [0] * replicas
        self._flights: dict[str, _Flight] = {}
        #: (when, replica) to look at an engine; those that are not its next_at are out of date
        self._wakes: list[tuple[float, int]] = []
        self._next_at = [math.inf] * replicas
        self._open = 0  # measured requests that still run

    def play(self) -> None:
        arrivals = iter(self.requests)
        coming = next(arrivals, None)
        now = 0.0
        while coming is not None or self._open:
            if coming is not None and (not self._wakes or coming.at_s <= self._wakes[0][0]):
                now = coming.at_s
                self._arrive(coming)
                coming = next(arrivals, None)
            else:
                now, replica = heappop(self._wakes)
                if now == self._next_at[replica]:
                    self._advance(replica, now)
                    self._plan(replica)
        for replica in range(len(self.engines)):
            self._advance(replica, now)

    @property
    def tokens(self) -> int:
        """What came out while the trial was measured."""
        return sum(_tokens(each, self.begin, self.end) for engine in self.engines for each in engine.stretches or ())

    def _arrive(self, request: WorkloadRequest) -> None:
        replica = min(range(len(self.engines)), key=self._in_flight.__getitem__)
        engine = self.engines[replica]
        if request.input_tokens + request.output_tokens > engine.largest_request:
            self.refused += 1
            return
        self._advance(replica, request.at_s)
        name = str(engine.counters.added * len(self.engines) + replica)
        engine.add(name, request.input_tokens, request.output_tokens, request.at_s)
        measured = self.begin <= request.at_s < self.end
        self._flights[name] = _Flight(request, measured)
        self._in_flight[replica] += 1
        self._open += measured
        self._plan(replica)

    def _plan(self, replica: int) -> None:
        at_s = self._next_at[replica] = self.engines[replica].next_at()
        if at_s < math.inf:
            heappush(self._wakes, (at_s, replica))

    def _advance(self, replica: int, now: float) -> None:
        for event in self.engines[replica].advance(now):
            if event.kind == "first":
                self._flights[event.request_id].first_s = event.at_s
            elif event.kind == "finished":
                flight = self._flights.pop(event.request_id)
                flight.last_s = event.at_s
                self._in_flight[replica] -= 1
                if flight.measured:
                    self._open -= 1
                    self.done.append(flight)


def _tokens(stretch: Stretch, begin_s: float, end_s: float) -> int:
    """Those of its steps that end from `begin_s` to before `end_s`."""
    at, count = stretch.start_ps, 0
    for step in range(stretch.steps):
        at += stretch.first_ps + step * stretch.growth_ps
        count += begin_s <= at / SECOND < end_s
    return count * stretch.tokens


def _tpot(done: list[_Flight]) -> Tail | None:
    each = [
        tpot_s((f.first_s or 0.0) - f.request.at_s, f.last_s - f.request.at_s, f.request.output_tokens) for f in done
    ]
    known = [value for value in each if value is not None]
    return _tail(known) if known else None


def _tail(values: list[float]) -> Tail:
    return Tail(mean(values), *percentiles(values, (0.5, 0.95, 0.99)))
