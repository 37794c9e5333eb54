"""The phases of a run, one after the other: warm-up, one request at a time, then the points of the sweep.

Runs on one thread and blocks; the client wants it so. What was measured before a stop is kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from random import Random
from typing import Protocol

from kilocard.bench.ask import Ask
from kilocard.bench.asked import SINGLE_OUTPUT, SINGLE_REPEATS, Asked, single_lengths
from kilocard.bench.client import Client
from kilocard.bench.drive import drive_closed, drive_open
from kilocard.bench.loads import Load
from kilocard.bench.measuring import TICK_S, Driven, Progress
from kilocard.bench.offered import closed_loop, open_loop
from kilocard.bench.point import EngineSample, Point
from kilocard.bench.prompts import Prompts
from kilocard.bench.record import CUT_OFF, RequestRecord
from kilocard.bench.server import Server
from kilocard.bench.sweep import Sweep
from kilocard.bench.window import ArrivalWindow, SteadyWindow, Window

#: requests, one at a time, before anything is measured: caches, compilers and connections are warm then
WARMUP = 2
#: share of the whole time that the single-request phase may take
_SINGLE_SHARE = 0.2
#: a point at which others took the client's processor is measured again, so many times
AGAIN = 1
#: of one core: a client that needs more than this is its own limit, and measuring again helps nothing
_OWN_LIMIT = 0.5
#: a point ends when so many requests failed and none did not
_HOPELESS = 20
#: requests of an open loop have the window's seconds once more to end, and so many times an undisturbed answer's
_PATIENCE = 3.0


class Tell(Protocol):
    """Who watches. Calls come from within the measurement, so they have to be quick."""

    def phase(self, text: str) -> None:
        """What begins now."""

    def note(self, text: str) -> None:
        """What happened that a reader may wonder about."""

    def tick(self, progress: Progress, window: Window, sample: EngineSample | None) -> None:
        """A few times a second within a point."""

    def measured(self, point: Point) -> None: ...


class Samples(Protocol):
    """The engine's gauges, read beside the run by somebody else; in order of time."""

    @property
    def samples(self) -> Sequence[EngineSample]: ...


@dataclass(slots=True)
class Stop:
    """Ctrl-C, or whoever else wants the end."""

    asked: bool = False


@dataclass(slots=True)
class Measured:
    points: list[Point] = field(default_factory=list)
    #: answered one at a time: those for their prompts, those for their answers
    prefills: list[RequestRecord] = field(default_factory=list)
    decodes: list[RequestRecord] = field(default_factory=list)
    #: why not everything that was asked for is there; None: it is
    ended_early: str | None = None
    #: because somebody wanted it so
    stopped: bool = False


class Run:
    """One of them, used once."""

    def __init__(
        self,
        asked: Asked,
        server: Server,
        client: Client,
        prompts: Prompts,
        sweep: Sweep,
        *,
        engine: Samples,
        tell: Tell,
        stop: Stop,
        spent_s: float = 0.0,
    ) -> None:
        """`spent_s`: of the time that the whole run may take, before it came to this."""
        self.asked, self.server, self.client, self.prompts, self.sweep = asked, server, client, prompts, sweep
        self.engine, self.tell, self.stop = engine, tell, stop
        self.done = Measured()
        self._deadline_s = client.now() + asked.max_seconds - spent_s
        self._again = 0

    def run(self) -> Measured:
        answer_s = self._warm_up()
        if self.asked.single and not self._must_end():
            self._one_at_a_time()
        if self.asked.trace:
            self._trace()
            self._must_end()
            return self.done
        while not self._must_end() and (load := self.sweep.next(self.done.points)) is not None:
            repeat = sum(load_of(point) == load for point in self.done.points)
            if load.concurrency is not None:
                self._closed(load.concurrency, repeat)
            elif load.rate_per_s is not None:
                self._open(load.rate_per_s, repeat, answer_s)
        return self.done

    def _must_end(self) -> bool:
        """Is there a reason not to begin anything more?"""
        if self.done.ended_early is None and self.stop.asked:
            self.done.ended_early, self.done.stopped = "it was stopped", True
        if self.done.ended_early is None and self.client.now() >= self._deadline_s:
            self.done.ended_early = f"the {self.asked.max_seconds:g} s of --max-seconds were over"
        return self.done.ended_early is not None

    # ---- one at a time

    def _warm_up(self) -> float:
        """Seconds that an answer took, the last time."""
        self.tell.phase("warm-up")
        took = 0.0
        for request in islice(closed_loop(self.asked, self._rng(0)), WARMUP):
            if self._must_end():
                break
            record = self._ask(request.input_tokens, request.output_tokens)
            took = (record.done_s or record.sent_s) - record.sent_s
        return took

    def _one_at_a_time(self) -> None:
        """Prefill and decode apart: prompts of several lengths with answers of two tokens, then whole answers."""
        self.tell.phase("one request at a time")
        kind = self.asked.mix.kinds[0]
        length, answer = round(kind.input.mean), round(kind.output.mean)
        longest = self.server.max_model_len
        room = None if longest is None else longest - SINGLE_OUTPUT
        until = self.client.now() + _SINGLE_SHARE * self.asked.max_seconds
        lengths = single_lengths(length, room, self.prompts.calibration.shortest)
        asks = [(self.done.prefills, tokens, SINGLE_OUTPUT) for _ in range(SINGLE_REPEATS) for tokens in lengths]
        asks += [(self.done.decodes, length, answer)] * SINGLE_REPEATS
        for found, tokens, output in asks:
            if self._must_end() or self.client.now() >= until:
                break
            found.append(self._ask(tokens, output))

    def _ask(self, tokens: int, output: int) -> RequestRecord:
        """One request, and nothing beside it. It is cut off when the end comes."""
        done: list[RequestRecord] = []
        self.client.start(self.prompts.ask(tokens, output), self.client.now(), done.append)
        while not done:
            self.client.turn(self.client.now() + TICK_S)
            if not done and self._must_end():
                self.client.cut_off()
        return done[0]

    # ---- points

    def _closed(self, concurrency: int, repeat: int) -> None:
        prompts, requests = self.prompts.fresh(), closed_loop(self.asked, self._rng(repeat))

        def make_ask() -> Ask:
            return prompts.of(next(requests))

        window = SteadyWindow(concurrency, self.client.now(), self.asked.duration_s, self.asked.requests)
        self.tell.phase(str(Load(concurrency=concurrency)))
        watched = _Watched(self, window)
        driven = drive_closed(self.client, make_ask, concurrency, seconds=self._left_s(), on_tick=watched.tick)
        self._keep(watched.point(driven, Load(concurrency=concurrency), repeat), driven)

    def _open(self, rate_per_s: float, repeat: int, answer_s: float) -> None:
        load = Load(rate_per_s=rate_per_s)
        prompts, requests = self.prompts.fresh(), open_loop(self.asked, rate_per_s, self._rng(repeat))
        seconds = self.asked.duration_s
        if seconds is None:
            assert self.asked.requests is not None
            seconds = self.asked.requests / rate_per_s
        # until as many answers run as ever will: at least one whole answer's time
        lead_s = max(seconds / 4, min(2 * answer_s, seconds))
        opens_s = self.client.now() + lead_s
        window = ArrivalWindow(opens_s, opens_s + seconds, max(seconds, _PATIENCE * answer_s))
        self.tell.phase(str(load))
        watched = _Watched(self, window)
        driven = drive_open(
            self.client, (prompts.of(request) for request in requests), seconds=self._left_s(), on_tick=watched.tick
        )
        self._keep(watched.point(driven, load, repeat), driven)

    def _trace(self) -> None:
        begun_s = self.client.now()
        last_s = max(request.at_s for request in self.asked.trace)
        # a turn that waited for the one before comes later than its time, and still belongs to the trace
        window = ArrivalWindow(begun_s, math.inf, 0.0)
        self.tell.phase(f"the trace: {len(self.asked.trace)} requests in {last_s:.0f} s")
        watched = _Watched(self, window)
        asks = (self.prompts.of(request) for request in self.asked.trace)
        driven = drive_open(self.client, asks, seconds=self._left_s(), on_tick=watched.tick)
        self._keep(watched.point(driven, Load(), 0), driven)

    def _rng(self, repeat: int) -> Random:
        return Random(f"{self.asked.seed} {repeat}")  # noqa: S311  # nothing secret is drawn

    def _left_s(self) -> float:
        return max(0.0, self._deadline_s - self.client.now())

    def _keep(self, point: Point, driven: Driven) -> None:
        answered = any(record.error is None for record in driven.records)
        failed = [record.error for record in driven.records if record.error not in (None, CUT_OFF)]
        if self._is_spoilt(point):
            self._again += 1
            self.tell.note(f"{load_of(point)}: measured once more, since {point.client.limited}")
            return
        self._again = 0
        if point.ended_s > point.started_s and (point.records or point.carried):
            self.done.points.append(point)
            self.tell.measured(point)
        elif not self._must_end():
            self.done.ended_early = f"nothing could be measured at {load_of(point)}"
        if failed and not answered:
            example = self.client.examples.get(failed[0] or "", "")
            self.done.ended_early = f"every request failed: {failed[0]}" + (f" ({example})" if example else "")

    def _is_spoilt(self, point: Point) -> bool:
        """Did others take the client's processor, and may it go better another time?"""
        neighbours = point.client.limited is not None and point.client.cpu_share < _OWN_LIMIT
        return neighbours and self._again < AGAIN and not self.asked.trace and not self._must_end()


class _Watched:
    """One point while it is driven: feeds the window, tells who watches, ends it in time."""

    def __init__(self, run: Run, window: Window) -> None:
        self._run, self._window = run, window
        self._seen = 0
        self._first_sample = len(run.engine.samples)

    def tick(self, progress: Progress) -> bool:
        run = self._run
        now = run.client.now()
        self._feed(progress.records, now)
        samples = run.engine.samples
        run.tell.tick(progress, self._window, samples[-1] if samples else None)
        hopeless = progress.failed == progress.done and progress.failed >= max(_HOPELESS, 2 * progress.in_flight)
        return run.stop.asked or hopeless or self._window.is_over(now, progress.oldest_s)

    def _feed(self, records: Sequence[RequestRecord], now: float) -> None:
        for record in records[self._seen :]:
            self._window.ended(record, now if record.done_s is None else record.done_s)
        self._seen = len(records)

    def point(self, driven: Driven, load: Load, repeat: int) -> Point:
        window = self._window
        window.close(driven.ended_s)
        self._feed(driven.records, driven.ended_s)
        started_s, ended_s = window.bounds
        return Point(
            started_s,
            ended_s,
            concurrency=load.concurrency,
            rate_per_s=load.rate_per_s,
            records=sorted(window.measured, key=lambda record: record.intended_s),
            warmup=window.warmup,
            carried=window.carried,
            samples=list(self._run.engine.samples[self._first_sample :]),
            client=driven.health,
            repeat=repeat,
        )


def load_of(point: Point) -> Load:
    """What it offered."""
    return Load(point.concurrency, point.rate_per_s)
