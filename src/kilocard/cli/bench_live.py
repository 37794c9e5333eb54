"""What `kilocard bench` shows on stderr while it measures: a line for each point that is done, and one for now."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from kilocard.bench.document import PointResult
from kilocard.bench.measuring import Progress
from kilocard.bench.point import EngineSample
from kilocard.bench.window import SteadyWindow, Window
from kilocard.cli.output import notes

#: frames a second; each costs the client's processor about a millisecond
FRAMES = 4
_COLUMNS = ("load", "requests", "errors", "tok/s", "req/s", "TTFT p50", "p95", "TPOT", "running", "waiting", "KV")


class BenchLive:
    """A context manager. Without a terminal it prints a line a point, and nothing in between."""

    def __init__(self) -> None:
        self._lines: list[tuple[str, ...]] = []
        self._phase = ""
        self._since = time.monotonic()
        self._now = ""
        self._arrivals = (0.0, 0)
        self._rate = 0.0
        self._live = Live(get_renderable=self._draw, console=notes, refresh_per_second=FRAMES, transient=True)

    def __enter__(self) -> Self:
        if notes.is_terminal:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._live.stop()

    # ---- what the measurement tells

    def phase(self, text: str) -> None:
        self._phase, self._since, self._now, self._arrivals, self._rate = text, time.monotonic(), "", (0.0, 0), 0.0
        if not notes.is_terminal:
            notes.print(escape(text))

    def note(self, text: str) -> None:
        notes.print(f"[yellow]{escape(text)}[/]")

    def tick(self, progress: Progress, window: Window, sample: EngineSample | None) -> None:
        then, before = self._arrivals
        if progress.at_s - then >= 1.0:
            self._rate = (progress.arrivals - before) / (progress.at_s - then)
            self._arrivals = (progress.at_s, progress.arrivals)
        parts = ["warming up" if not _is_open(window) else f"{len(window.measured)} measured"]
        parts.append(f"{progress.in_flight} in flight")
        if self._rate:
            parts.append(f"{self._rate:,.0f} chunks/s")
        if progress.failed:
            parts.append(f"{progress.failed} failed")
        if sample is not None and sample.running is not None:
            parts.append(f"engine: {sample.running:g} running, {_shown(sample.waiting)} waiting")
        self._now = ", ".join(parts)

    def measured(self, point: PointResult, load: str) -> None:
        line = _line(point, load)
        self._lines.append(line)
        if not notes.is_terminal:
            shown = zip(_COLUMNS, line, strict=True)
            notes.print("  " + escape(", ".join(f"{name} {value}" for name, value in shown if name != "load")))

    # ---- the picture

    def _draw(self) -> RenderableType:
        parts: list[RenderableType] = []
        if self._lines:
            table = Table(box=None, pad_edge=False)
            for place, name in enumerate(_COLUMNS):
                table.add_column(name, justify="left" if place == 0 else "right")
            for line in self._lines:
                table.add_row(*map(escape, line))
            parts.append(table)
        seconds = time.monotonic() - self._since
        parts.append(Text.assemble((f"{self._phase} ", "bold"), f"{seconds:.0f} s  {self._now}  (Ctrl-C: stop here)"))
        return Group(*parts)


def _is_open(window: Window) -> bool:
    return window.opened_s is not None if isinstance(window, SteadyWindow) else bool(window.measured)


def _line(point: PointResult, load: str) -> tuple[str, ...]:
    ttft, tpot, engine = point.ttft_s, point.tpot_s, point.engine
    return (
        load,
        f"{point.completed}",
        f"{point.errors}",
        f"{point.output_tokens_per_s:,.1f}",
        f"{point.requests_per_s:.2f}",
        "–" if ttft is None else _ms(ttft.p50),
        "–" if ttft is None else _ms(ttft.p95),
        "–" if tpot is None or tpot.mean is None else _ms(tpot.mean),
        _shown(engine.running_max),
        _shown(engine.waiting_max),
        "–" if engine.kv_usage_max is None else f"{engine.kv_usage_max:.0%}",
    )


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.1f} ms" if seconds < 10 else f"{seconds:,.1f} s"


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:g}"
