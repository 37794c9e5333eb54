"""What `kilocard bench` shows on stderr while it measures: a row for each point that is done, and a line for now.

The line is plain text, written twice a second by a thread: whatever draws takes the interpreter from the thread that
measures, and a table that is laid out anew made it late by tens of milliseconds on a busy machine.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

from kilocard.bench.document import PointResult
from kilocard.bench.measuring import Progress
from kilocard.bench.point import EngineSample
from kilocard.bench.units import milliseconds, share
from kilocard.bench.window import SteadyWindow, Window
from kilocard.cli.output import notes

PERIOD_S = 0.5
#: name and width of each column; times are milliseconds
_COLUMNS = (
    ("load", -16), ("requests", 9), ("failed", 7), ("req/s", 9), ("tok/s", 9), ("TTFT p50", 9), ("p95", 9), ("TPOT", 8),
    ("running", 8), ("waiting", 8), ("KV", 7),
)  # fmt: skip
_CLEAR = "\r\x1b[2K"


class BenchLive:
    """A context manager. Without a terminal there is no line for now, and a line for what begins instead."""

    def __init__(self) -> None:
        self._phase = ""
        self._since = time.monotonic()
        self._now = ""
        self._arrivals = (0.0, 0)
        self._rate = 0.0
        self._rows = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._show, name="progress", daemon=True)

    def __enter__(self) -> Self:
        if notes.is_terminal:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(2 * PERIOD_S)  # a terminal that is held up must not hold us up

    # ---- what the measurement tells

    def phase(self, text: str) -> None:
        self._phase, self._since, self._now, self._arrivals, self._rate = text, time.monotonic(), "", (0.0, 0), 0.0
        if not notes.is_terminal:
            notes.print(text)

    def note(self, text: str) -> None:
        self._print(text, "yellow")

    def tick(self, progress: Progress, window: Window, sample: EngineSample | None) -> None:
        then, before = self._arrivals
        if progress.at_s - then >= 1.0:
            self._rate = (progress.arrivals - before) / (progress.at_s - then)
            self._arrivals = (progress.at_s, progress.arrivals)
        parts = [f"{len(window.measured)} measured" if _is_open(window) else "warming up"]
        parts.append(f"{progress.in_flight} in flight")
        if self._rate:
            parts.append(f"{self._rate:,.0f} chunks/s")
        if progress.failed:
            parts.append(f"{progress.failed} failed")
        if sample is not None and sample.running is not None:
            parts.append(f"engine: {sample.running:g} running, {_count(sample.waiting)} waiting")
        self._now = ", ".join(parts)

    def measured(self, point: PointResult, load: str) -> None:
        if not self._rows:
            self._print(_row([name for name, _ in _COLUMNS]), "dim")
        self._rows += 1
        self._print(_row(_cells(point, load)))

    # ---- the screen

    def _print(self, text: str, style: str | None = None) -> None:
        if notes.is_terminal:
            notes.file.write(_CLEAR)
        notes.print(text, style=style, no_wrap=True, overflow="ignore", crop=False)

    def _show(self) -> None:
        while not self._over.wait(PERIOD_S):
            text = f"{self._phase}  {time.monotonic() - self._since:.0f} s  {self._now}  (Ctrl-C: stop here)"
            notes.file.write(_CLEAR + text[: notes.width - 1])
            notes.file.flush()
        notes.file.write(_CLEAR)
        notes.file.flush()


def _is_open(window: Window) -> bool:
    return window.opened_s is not None if isinstance(window, SteadyWindow) else bool(window.measured)


def _row(cells: list[str]) -> str:
    widths = [width for _, width in _COLUMNS]
    padded = (cell.rjust(width) if width > 0 else cell.ljust(-width) for cell, width in zip(cells, widths, strict=True))
    return "".join(padded).rstrip()


def _cells(point: PointResult, load: str) -> list[str]:
    ttft, tpot, engine = point.ttft_s, point.tpot_s, point.engine
    return [
        load,
        f"{point.completed}",
        f"{point.errors}",
        f"{point.requests_per_s:.2f}",
        f"{point.output_tokens_per_s:,.0f}",
        "–" if ttft is None else milliseconds(ttft.p50),
        "–" if ttft is None else milliseconds(ttft.p95),
        "–" if tpot is None or tpot.mean is None else milliseconds(tpot.mean),
        _count(engine.running_max),
        _count(engine.waiting_max),
        "–" if engine.kv_usage_max is None else share(engine.kv_usage_max),
    ]


def _count(value: float | None) -> str:
    return "–" if value is None else f"{value:g}"
