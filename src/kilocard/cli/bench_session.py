"""One run of `kilocard bench`: find out what the server is, measure, judge."""

from __future__ import annotations

import asyncio
import os
import platform
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from random import SystemRandom
from time import monotonic
from types import FrameType
from typing import Any

from kilocard import __version__
from kilocard.bench import findings
from kilocard.bench.accepted import Endpoint
from kilocard.bench.ask import Target
from kilocard.bench.asked import Asked, single_lengths, too_long
from kilocard.bench.calibration import Calibration
from kilocard.bench.client import Client
from kilocard.bench.document import About, Finding, PointResult, Results, Slo, TargetSeen
from kilocard.bench.form import Form
from kilocard.bench.knee import find_knee
from kilocard.bench.measuring import Progress
from kilocard.bench.point import EngineSample, Point
from kilocard.bench.prompt_counter import calibrate_prompts
from kilocard.bench.prompts import Prompts
from kilocard.bench.results import assemble, named
from kilocard.bench.run import Measured, Run, Stop, load_of
from kilocard.bench.sampler import Sampler
from kilocard.bench.server import Server
from kilocard.bench.single import single
from kilocard.bench.stop import stop_early as why_stop
from kilocard.bench.summary import summarise
from kilocard.bench.sweep import Doubling, Listed, Sweep
from kilocard.bench.target import look
from kilocard.bench.trust import distrust
from kilocard.bench.window import Window
from kilocard.cli.bench_live import BenchLive
from kilocard.core.errors import UpstreamTimeout, UsageError
from kilocard.net.loop import run as run_async

#: findings that assemble() makes out of the summaries: such numbers are withheld, and why is said there
_SAID_BY_NUMBERS = frozenset({"not_streamed"})


class Session:
    """Used once. It is also who the measurement tells what happens."""

    def __init__(
        self,
        asked: Asked,
        target: Target,
        *,
        model: str | None,
        endpoint: Endpoint | None,
        form: Form,
        metrics_urls: Sequence[str],
        gpu_urls: Sequence[str],
        slo: Slo | None,
        stop_early: bool,
        arguments: dict[str, Any],
    ) -> None:
        self._asked, self._target, self._model, self._endpoint, self._form = asked, target, model, endpoint, form
        self._metrics_urls, self._gpu_urls, self._slo = metrics_urls, gpu_urls, slo
        self._stops_early = stop_early
        self._arguments = arguments
        self._results: list[PointResult] = []
        #: what to know of the points, by its id: the points' names and the last one's words
        self._known: dict[str, tuple[list[str], findings.Finding]] = {}
        self._look_at: Callable[[Point], list[findings.Finding]] = lambda point: []
        self._stopped: str | None = None
        self._most = asked.most
        self._live = BenchLive()
        self._random = SystemRandom()
        self._stop = Stop()

    def measure(self) -> tuple[Results, Measured, str | None]:
        """The results, what they are made of, and why they can't be trusted (None: they can)."""
        begun = datetime.now(UTC)
        began_s = monotonic()
        with self._live:
            self._live.phase(f"looking at {self._target.url}")
            server, calibration = run_async(self._prepare_in_time())
            spent_s = monotonic() - began_s
            prompts = Prompts(calibration, server.form, self._random)
            self._look_at = partial(_known_of, server, calibration, self._asked)
            with Client(server.target) as client, _ctrl_c(self._stop):
                self._check_sockets(client.max_sockets)
                sampler = Sampler(server.target, server.pages, client.now, gpu_urls=self._gpu_urls)
                sampler.start()
                try:
                    measured = Run(
                        self._asked,
                        server,
                        client,
                        prompts,
                        self._sweep(),
                        engine=sampler,
                        tell=self,
                        stop=self._stop,
                        spent_s=spent_s,
                    ).run()
                finally:
                    sampler.stop()
        results = self._assemble(begun, server, calibration, measured, sampler.trouble)
        return results, measured, distrust(results, measured)

    async def _prepare_in_time(self) -> tuple[Server, Calibration]:
        """A server that streams without end, or loads a model for longer than anybody waits, is no reason to hang."""
        most = self._asked.max_seconds
        try:
            async with asyncio.timeout(most):
                return await self._prepare()
        except TimeoutError as error:
            raise UpstreamTimeout(
                f"{self._target.url}: the {most:g} s of --max-seconds were over before the first answers had ended. "
                "Does the server still load the model, or does its stream never end?"
            ) from error

    async def _prepare(self) -> tuple[Server, Calibration]:
        server = await look(
            self._target,
            model=self._model,
            endpoint=self._endpoint,
            form=self._form,
            metrics_urls=self._metrics_urls,
        )
        problem = too_long(self._asked.mix, server.max_model_len)
        if problem is not None:
            raise UsageError(problem)
        mean = self._asked.mix.kinds[0].input.mean
        calibration = await calibrate_prompts(server, single_lengths(mean, server.max_model_len), self._random)
        return server, calibration

    def _check_sockets(self, most: int) -> None:
        """Before an hour is measured for nothing. Raises UsageError."""
        wanted = max((load.concurrency or 0 for load in self._asked.loads), default=0)
        if wanted > most:
            raise UsageError(
                f"--sweep: {wanted} at once need more than the {most} sockets that we may open (ulimit -n)"
            )
        self._most = min(self._asked.most, most)

    def _sweep(self) -> Sweep:
        if self._asked.loads:
            return Listed(self._asked.loads, self._asked.repeats, self._is_past if self._stops_early else None)
        return Doubling(self._is_past, self._knee, most=self._most, repeats=self._asked.repeats)

    def _is_past(self, points: Sequence[Point]) -> bool:
        reason = why_stop(self._results[: len(points)])
        self._stopped = self._stopped or reason
        return reason is not None

    def _knee(self, points: Sequence[Point]) -> int | None:
        return find_knee(self._results).concurrency

    # ---- what the measurement tells

    def phase(self, text: str) -> None:
        self._live.phase(text)

    def note(self, text: str) -> None:
        self._live.note(text)

    def tick(self, progress: Progress, window: Window, sample: EngineSample | None) -> None:
        self._live.tick(progress, window, sample)

    def measured(self, point: Point) -> None:
        result = summarise(point, self._slo)
        self._results.append(result)
        self._live.measured(result, str(load_of(point)))
        for finding in self._look_at(point):
            at, _ = self._known.get(finding.id, ([], finding))
            self._known[finding.id] = ([*at, named(result)], finding)

    # ---- the document

    def _assemble(
        self, begun: datetime, server: Server, calibration: Calibration, measured: Measured, trouble: str | None
    ) -> Results:
        known = [Finding(severity="note", text=note) for note in server.notes]
        if measured.ended_early is not None:
            known.insert(0, Finding(severity="warning", text=f"Not all was measured: {measured.ended_early}."))
        if trouble is not None:
            known.append(Finding(severity="note", text=f"Some of the engine's gauges are missing: {trouble}"))
        for at, finding in self._known.values():
            where = at[0] if len(at) == 1 else f"{len(at)} points, the last at {at[-1]}"
            known.append(Finding(severity=finding.severity, text=f"{where}: {finding.text}."))
        return assemble(
            self._results,
            target=TargetSeen(
                url=server.target.url,
                model=server.model,
                path=server.target.path,
                engine=server.engine,
                engine_version=server.engine_version,
                max_num_seqs=server.max_num_seqs,
                kv_tokens=server.kv_tokens,
                block_size=server.block_size,
            ),
            about=About(
                started_at=begun.isoformat(timespec="seconds"),
                kilocard=__version__,
                arguments=self._arguments,
                seed=self._asked.seed,
                prompts=_described(calibration),
                request=server.form.fields(),
                machine=f"{platform.system()} {platform.machine()}, {len(os.sched_getaffinity(0))} processors",
            ),
            slo=self._slo,
            single=single(measured.prefills, measured.decodes) or None,
            stopped_early=self._stopped,
            findings=known,
        )


def _described(calibration: Calibration) -> str:
    exact = "each word one token" if calibration.exact else f"{calibration.tokens_per_word:.2f} tokens a word"
    return f"random words, {exact}, {calibration.overhead:g} tokens around them"


def _known_of(server: Server, calibration: Calibration, asked: Asked, point: Point) -> list[findings.Finding]:
    """What the prober's checks say of a point, but for what the point's numbers say themselves."""
    shares = asked.chat is not None or any(request.blocks for request in asked.trace)
    samples = [sample for sample in point.samples if point.started_s <= sample.at_s <= point.ended_s]
    found = findings.all_findings(
        point.records,
        samples,
        ignore_eos=server.form.ignore_eos or server.form.min_tokens,
        distinct=not shares,
        template_tokens=calibration.overhead,
    )
    return [each for each in found if each.id not in _SAID_BY_NUMBERS]


@contextmanager
def _ctrl_c(stop: Stop) -> Iterator[None]:
    """The first one asks for the end, the second does not wait for it."""

    def asked(number: int, frame: FrameType | None) -> None:
        if stop.asked:
            os._exit(130)
        stop.asked = True

    before = {number: signal.signal(number, asked) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
