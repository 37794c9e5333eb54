"""What is shown while the load tester measures."""

from __future__ import annotations

import io
import math

import pytest
from rich.console import Console

from kilocard.bench.measuring import Progress
from kilocard.bench.point import EngineSample
from kilocard.bench.summary import summarise
from kilocard.bench.window import SteadyWindow
from kilocard.cli import bench_live
from kilocard.cli.bench_live import BenchLive
from simulated_points import simulated_point


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """No terminal, as in a pipe or a CI log."""
    written = io.StringIO()
    monkeypatch.setattr(bench_live, "notes", Console(file=written, width=200, markup=False, force_terminal=False))
    return written


def test_without_a_terminal_each_phase_and_each_point_is_a_line(screen: io.StringIO) -> None:
    result = summarise(simulated_point(concurrency=8))
    with BenchLive() as live:
        live.phase("8 at once")
        live.measured(result, "8 at once")
        live.note("8 at once: measured once more [to see]")
    phase, header, row, note = screen.getvalue().splitlines()
    assert phase == "8 at once"
    assert header.split()[:4] == ["load", "requests", "failed", "req/s"]
    assert len(header) >= len(row) and row.startswith("8 at once ")
    assert f" {result.completed} " in row and f" {result.output_tokens_per_s:,.0f} " in row
    assert note == "8 at once: measured once more [to see]"
    assert "\x1b" not in screen.getvalue()


def test_the_line_for_now_says_what_is_measured_and_what_the_engine_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = io.StringIO()
    monkeypatch.setattr(bench_live, "notes", Console(file=written, width=200, markup=False, force_terminal=True))
    monkeypatch.setattr(bench_live, "PERIOD_S", 0.001)
    window = SteadyWindow(8, 0.0, seconds=10.0)
    sample = EngineSample(3.0, running=8.0, waiting=4.0)
    with BenchLive() as live:
        live.phase("12 at once")
        live.tick(Progress(3.0, 12, 5, 1, 600, math.inf, []), window, sample)
        while "waiting" not in written.getvalue():
            pass
    line = next(frame for frame in written.getvalue().split("\x1b[2K") if "waiting" in frame)
    for part in ("12 at once", "warming up", "12 in flight", "200 chunks/s", "1 failed", "8 running, 4 waiting"):
        assert part in line
    assert written.getvalue().endswith("\x1b[2K")  # nothing is left standing
