"""What `kilocard bench` left in a folder, as calibration wants it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kilocard.bench import requests_log
from kilocard.bench import results as results_json
from kilocard.bench.document import PointResult, Results
from kilocard.bench.record import CUT_OFF
from kilocard.bench.requests_log import Line
from kilocard.bench.results import named
from kilocard.bench.streams import stream
from kilocard.core.errors import UsageError
from kilocard.perf.seen_steps import Stream
from kilocard.sim.prediction import Measurement

#: of a point's streams, the share whose gaps have to be steps
_EXACT = 0.5


@dataclass(frozen=True, slots=True)
class Run:
    results: Results
    measurements: tuple[Measurement, ...]
    #: requests sent one after the other, before the points: prompts of several lengths with nothing beside them
    alone: tuple[Stream, ...] = ()


def read_run(folder: Path, *, even_limited: bool = False) -> Run:
    """`even_limited`: loads at which the load tester was the limit are as good as others.

    Raises UsageError: files are missing, damaged, or hold nothing that can be used."""
    try:
        results = results_json.load((folder / "results.json").read_bytes(), str(folder / "results.json"))
        path = folder / "requests.jsonl"
        with path.open("rb") as lines:
            seen = list(requests_log.read(lines, str(path)))
    except OSError as error:
        raise UsageError(
            f"{error.filename}: {error.strerror}: give the folder that `kilocard bench … --out FOLDER` wrote"
        ) from None
    by_point: dict[int, list[Line]] = {place: [] for place in range(len(results.points))}
    for line in seen:
        if line.point == requests_log.ALONE:
            continue
        if line.point not in by_point:
            raise UsageError(f"{path}: a request of point {line.point}, which {folder / 'results.json'} does not have")
        by_point[line.point].append(line)
    found = [_measurement(results.points[place], lines, even_limited) for place, lines in by_point.items()]
    used = tuple(measurement for measurement in found if measurement is not None)
    if not used:
        raise UsageError(f"{folder}: no request of this run got an answer")
    alone = (stream(line.record) for line in seen if line.point == requests_log.ALONE)
    return Run(results, used, tuple(each for each in alone if each is not None and each.exact))


def _measurement(point: PointResult, lines: list[Line], even_limited: bool) -> Measurement | None:
    """None when nothing was answered."""
    ordered = sorted(lines, key=lambda line: line.record.sent_s)
    pairs = [(stream(line.record), line) for line in ordered]
    kept = [(found, line) for found, line in pairs if found is not None]
    if not any(found.tokens_s for found, _ in kept):
        return None
    outputs = [line.record.output_tokens or line.record.asked_output for _, line in kept]
    return Measurement(
        label=named(point),
        streams=tuple(found for found, _ in kept),
        asked_output=tuple(outputs),
        started_s=point.started_s,
        ended_s=point.started_s + point.window_s,
        carried=sum(line.carried for _, line in kept),
        concurrency=point.concurrency,
        cut_off=any(line.record.error == CUT_OFF for _, line in kept),
        left_out=_left_out([found for found, _ in kept], point, even_limited),
    )


def _left_out(streams: list[Stream], point: PointResult, even_limited: bool) -> str | None:
    if point.client.limited and not even_limited:
        return f"the load tester was the limit: {point.client.limited}"
    if point.engine.preemptions:
        return f"{point.engine.preemptions:.0f} preemptions: what was computed again can't be seen from outside"
    if sum(each.exact for each in streams) < _EXACT * len(streams):
        return "tokens came several at a time, so gaps are no steps"
    return None
