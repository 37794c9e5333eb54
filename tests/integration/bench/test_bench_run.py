"""`kilocard bench` against emulated engines, whose speed and slots are known: does it find what is there?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import msgspec
import pytest
from bench_server import emulated, fault, gateway
from measurement import measurement

from kilocard.bench import run
from kilocard.bench.asked import Asked
from kilocard.bench.calibration import Calibration
from kilocard.bench.client import Client
from kilocard.bench.document import PointResult
from kilocard.bench.knee import find_knee
from kilocard.bench.loads import Load
from kilocard.bench.measuring import Progress
from kilocard.bench.point import EngineSample, Point
from kilocard.bench.prompt_counter import calibrate_prompts
from kilocard.bench.prompts import Prompts
from kilocard.bench.run import Measured, Run, Stop
from kilocard.bench.sampler import Sampler
from kilocard.bench.server import Server
from kilocard.bench.single import single
from kilocard.bench.stop import stop_early
from kilocard.bench.summary import summarise
from kilocard.bench.sweep import Doubling, Listed, Sweep
from kilocard.bench.target import look, target_of
from kilocard.bench.window import Window
from kilocard.workload.lengths import Fixed
from kilocard.workload.mixes import Mix
from kilocard.workload.sessions import Chat

MIX = Mix.of(Fixed(64), Fixed(16))


@pytest.fixture(autouse=True)
def once(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that others use too, points would be measured three times."""
    monkeypatch.setattr(run, "AGAIN", 0)


class Silent:
    """Nobody watches."""

    def phase(self, text: str) -> None: ...
    def note(self, text: str) -> None: ...
    def tick(self, progress: Progress, window: Window, sample: EngineSample | None) -> None: ...
    def measured(self, point: Point) -> None: ...


def measure(url: str, asked: Asked, sweep: Sweep, before: Callable[[], None] = lambda: None) -> Measured:
    """`before`: what happens to the server when it is known, and nothing has been measured."""

    async def prepare() -> tuple[Server, Calibration]:
        server = await look(target_of(url))
        return server, await calibrate_prompts(server, [64], Random(0))

    server, calibration = asyncio.run(prepare())
    before()
    with Client(server.target) as client:
        sampler = Sampler(server.target, server.pages, client.now, period_s=0.1)
        sampler.start()
        try:
            prompts = Prompts(calibration, server.form, Random())
            return Run(asked, server, client, prompts, sweep, engine=sampler, tell=Silent(), stop=Stop()).run()
        finally:
            sampler.stop()


def judged(points: Sequence[Point]) -> list[PointResult]:
    """As if the machine were quiet: whether others take its processor is not what these tests are about."""
    found = []
    for point in points:
        result = summarise(point)
        quiet = msgspec.structs.replace(result.client, limited=None)
        found.append(msgspec.structs.replace(result, client=quiet))
    return found


def doubling(most: int = 64) -> Doubling:
    return Doubling(
        is_past=lambda points: stop_early(judged(points)) is not None,
        knee=lambda points: find_knee(judged(points)).concurrency,
        most=most,
    )


@pytest.mark.parametrize("slots", [4, 10])
@measurement
def test_the_sweep_finds_the_slots_of_the_engine(slots: int) -> None:
    with emulated("--max-num-seqs", str(slots), "--speed", "2") as (url,):
        done = measure(url, Asked(mix=MIX, duration_s=1.5, single=False), doubling())
    assert done.ended_early is None
    points = judged(done.points)
    knee = find_knee(points)
    assert knee.concurrency is not None and slots <= knee.concurrency <= 1.25 * slots
    assert max(point.engine.running_max or 0 for point in points) == slots
    assert max(point.engine.waiting_max or 0 for point in points) > slots
    for point in points:
        assert point.errors == 0 and point.tokens_counted_by == "usage"
        assert point.output_tokens == 16 * point.completed
        assert point.input_tokens == 64 * point.completed


@measurement
def test_an_open_loop_measures_each_arrival_of_its_window() -> None:
    rates = Listed([Load(rate_per_s=20.0), Load(rate_per_s=500.0)])
    with emulated("--max-num-seqs", "4") as (url,):
        done = measure(url, Asked(mix=MIX, duration_s=5.0, single=False, max_seconds=30.0), rates)
    held, flooded = judged(done.points)
    assert held.errors == held.cut_off == 0
    assert held.requests_per_s == pytest.approx(held.offered_per_s, rel=0.2)
    assert flooded.saturation is not None and flooded.saturation.label == "overloaded"
    assert flooded.requests_per_s < 0.5 * flooded.offered_per_s


@measurement
def test_one_request_at_a_time_parts_prefill_and_decode() -> None:
    with emulated() as (url,):
        done = measure(url, Asked(mix=Mix.of(Fixed(512), Fixed(20)), duration_s=0.5), Listed([Load(concurrency=1)]))
    found = single(done.prefills, done.decodes)
    assert found["ttft_s_at_128"] < found["ttft_s_at_512"] < found["ttft_s_at_2048"]
    assert found["prefill_s_per_token"] > 0
    assert found["decode_tpot_s"] == pytest.approx(0.008, rel=0.25)  # a step of the default profile


def test_conversations_find_their_history_in_the_prefix_cache() -> None:
    chat = Chat(question=Fixed(32), answer=Fixed(16), turns=Fixed(4), think_s=0.0, system_tokens=64)
    with emulated("--max-num-seqs", "8") as (url,):
        done = measure(url, Asked(mix=MIX, chat=chat, duration_s=1.5, single=False), Listed([Load(concurrency=4)]))
    (point,) = judged(done.points)
    assert point.errors == 0
    inputs = {record.turn: record.input_tokens for record in done.points[0].records}
    assert inputs == {0: 96, 1: 144, 2: 192, 3: 240}


def test_a_limit_of_time_keeps_what_was_measured() -> None:
    with emulated() as (url,):
        done = measure(url, Asked(mix=MIX, duration_s=1.0, single=False, max_seconds=4.0), doubling())
    assert done.ended_early is not None and "--max-seconds" in done.ended_early
    assert done.points and not done.stopped


def test_a_server_that_fails_every_request_ends_the_run() -> None:
    with emulated() as (url,):
        asked = Asked(mix=MIX, duration_s=5.0, single=False, max_seconds=60.0)
        done = measure(url, asked, doubling(), before=lambda: fault(url, {"kind": "error", "status": 503}))
    assert done.ended_early is not None and done.ended_early.startswith("every request failed: ")
    assert "503" in done.ended_early
    (point,) = judged(done.points)
    assert point.completed == 0 and point.errors >= 10


def test_a_server_that_hangs_does_not_hang_the_run() -> None:
    with emulated() as (url,):
        asked = Asked(mix=MIX, duration_s=0.5, single=False, max_seconds=2.0)
        done = measure(url, asked, doubling(), before=lambda: fault(url, {"kind": "hang"}))
    assert done.points == [] and done.ended_early is not None


@measurement
def test_through_the_gateway_the_slots_of_all_replicas_are_found(tmp_path: Path) -> None:
    with emulated("--max-num-seqs", "3", "--speed", "2", count=2) as urls, gateway(tmp_path, urls) as url:
        done = measure(url, Asked(mix=MIX, duration_s=1.5, single=False), doubling(most=32))
    points = judged(done.points)
    knee = find_knee(points)
    assert knee.concurrency is not None and 6 <= knee.concurrency <= 8
    assert all(point.errors == 0 and point.output_tokens == 16 * point.completed for point in points)
