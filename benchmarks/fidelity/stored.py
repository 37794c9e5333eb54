"""Measured loads as small files, so that the comparison runs without the engine: `measured/PART.json`.

Of each request: when it was intended, prompt and answer tokens, when its first and its last token came. Milliseconds.
Of the engine's steps, as far as they can be told from outside: by kind, what is in one and how long it took.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.fidelity.pace import steps
from kilocard.bench.document import PointResult
from kilocard.bench.requests_log import Line
from kilocard.bench.streams import stream
from kilocard.perf.seen_steps import Stream
from kilocard.sim.prediction import Measurement

FOLDER = Path(__file__).parent / "measured"


@dataclass
class Stored:
    """One load. `rows`: [warm-up's, intended, prompt, output asked, first token, last token, tokens that came].

    `steps`: as pace.py counts them.
    """

    name: str
    concurrency: int | None
    #: of the window
    started_ms: float
    ended_ms: float
    cut_off: bool
    #: completions a second within the window
    requests_per_s: float
    preemptions: float | None
    #: what the load tester said of itself: None is good
    limited: str | None
    #: requests that failed
    errors: int = 0
    steps: list[list[float]] = field(default_factory=list)
    rows: list[list[Any]] = field(default_factory=list)

    @property
    def measurement(self) -> Measurement:
        return Measurement(
            label=self.name,
            streams=tuple(_streams(self.rows)),
            asked_output=tuple(row[3] for row in self.rows),
            started_s=self.started_ms / 1e3,
            ended_s=self.ended_ms / 1e3,
            carried=sum(row[0] for row in self.rows),
            concurrency=self.concurrency,
            cut_off=self.cut_off,
        )


def taken(name: str, point: PointResult, lines: list[Line]) -> Stored:
    """Of what kilocard bench wrote of one point."""
    rows = []
    for line in sorted(lines, key=lambda line: line.record.intended_s):
        record = line.record
        arrivals = 0 if record.first_s is None else len(record.gaps_s) + 1
        rows.append(
            [
                int(line.carried),
                _ms(record.intended_s),
                record.input_tokens or record.asked_input,
                record.output_tokens or record.asked_output,
                _ms(record.first_s),
                _ms(record.last_s),
                record.output_tokens or arrivals,
            ]
        )
    started_ms = point.started_s * 1e3
    return Stored(
        name,
        point.concurrency,
        started_ms=round(started_ms, 1),
        ended_ms=round(started_ms + point.window_s * 1e3, 1),
        cut_off=point.cut_off > 0 or any(line.record.error is not None for line in lines),
        requests_per_s=round(point.requests_per_s, 4),
        preemptions=point.engine.preemptions,
        limited=point.client.limited,
        errors=point.errors,
        steps=steps([found for line in lines if (found := stream(line.record)) is not None]),
        rows=rows,
    )


def write(part: str, facts: dict[str, Any], loads: list[Stored], folder: Path = FOLDER) -> None:
    """One row a line, so that a change shows what changed."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = []
    for load in loads:
        head = {key: value for key, value in vars(load).items() if key not in ("rows", "steps")}
        steps = json.dumps(load.steps, separators=(",", ":"))
        rows = ",\n".join(json.dumps(row, separators=(",", ":")) for row in load.rows)
        texts.append(json.dumps(head)[:-1] + f', "steps": {steps}, "rows": [\n{rows}\n]}}')
    body = ",\n".join(texts)
    (folder / f"{part}.json").write_text(json.dumps(facts)[:-1] + f', "loads": [\n{body}\n]}}\n')


def read(part: str, folder: Path = FOLDER) -> tuple[dict[str, Any], list[Stored]]:
    """Facts of the engine, and its loads; nothing where it was not measured."""
    path = folder / f"{part}.json"
    if not path.exists():
        return {}, []
    facts = json.loads(path.read_text())
    loads = [Stored(**load) for load in facts.pop("loads")]
    return facts, loads


def _streams(rows: list[list[Any]]) -> Iterator[Stream]:
    for _, intended, prompt, _, first, last, tokens in rows:
        times: tuple[float, ...] = ()
        if first is not None:
            # only the ends are kept; between them tokens come evenly
            gap = (last - first) / max(tokens - 1, 1)
            times = tuple((first + gap * place) / 1e3 for place in range(tokens))
        yield Stream(intended / 1e3, prompt, tokens_s=times)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e3, 1)
