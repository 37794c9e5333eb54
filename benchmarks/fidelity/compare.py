"""What was measured beside what the profile says, as tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, fields, replace
from functools import cached_property
from itertools import permutations
from pathlib import Path

from benchmarks.fidelity import stored
from benchmarks.fidelity.loads import PARTS, REPEATED, Part
from benchmarks.fidelity.measure import calibration_run
from benchmarks.fidelity.pace import pace, steps
from benchmarks.fidelity.stored import Stored
from kilocard.cli.calibration_base import Told, base
from kilocard.cli.calibration_check import cells
from kilocard.cli.calibration_run import read_run
from kilocard.core.statistics import percentile
from kilocard.perf.profile import Profile
from kilocard.sim.calibrated import Calibrated, calibrated
from kilocard.sim.fidelity import Figures, Modelled, measured, modelled

#: what is aimed at
GOAL = 0.10
COLUMNS = ("tokens/s", "TTFT p50", "TTFT p95", "TPOT p50", "TPOT p95")
#: how much slower an engine is played to show what its speed is worth
SLOWER = 0.03
_TIMES = [each.name for each in fields(Profile) if each.name.endswith("_s")]


class Row:
    """One load. What is modelled is played when it is asked for."""

    def __init__(self, part: str, load: Stored, first: Stored | None, profile: Profile, usual_pace: float) -> None:
        self.part = part
        self.name = load.name
        self.preemptions = load.preemptions or 0.0
        self.seen = measured(load.measurement)
        #: the same arrivals and lengths, when they were measured first
        self.first = None if first is None else measured(first.measurement)
        #: how much longer its steps took than the sweep's, each beside the profile, a share; None: preemptions hide it
        self.pace = None if load.preemptions else pace(load.steps, profile) / usual_pace - 1
        self._measurement = load.measurement
        self._profile = profile

    @cached_property
    def modelled(self) -> Modelled:
        return modelled(self._measurement, self._profile)

    @property
    def errors(self) -> tuple[float, ...]:
        return self.modelled.figures.errors(self.seen)

    @cached_property
    def at_pace(self) -> Figures | None:
        """Played at the pace of its own steps."""
        return None if self.pace is None else self._scaled(1 + self.pace)

    @cached_property
    def slower(self) -> Figures | None:
        """On a profile that is slower by SLOWER; of one part alone."""
        return self._scaled(1 + SLOWER) if self.part == REPEATED[0] else None

    def _scaled(self, factor: float) -> Figures:
        """Everything takes so many times as long."""
        times = {name: factor * getattr(self._profile, name) for name in _TIMES}
        profile = replace(self._profile, **times)  # type: ignore[arg-type]  # all of them floats
        return modelled(self._measurement, profile).figures


def fitted(folder: Path = stored.FOLDER) -> Calibrated:
    """The profile, from the calibration's sweep and what the engine said of itself. Nothing else goes into it."""
    with calibration_run(folder) as run_folder:
        run = read_run(run_folder, even_limited=True)
        return calibrated(run.measurements, base(run.results, Told()), run.alone)


def sweep_pace(found: Calibrated) -> float:
    """Of the sweep itself: what the fit left out as stalls, and how well single steps can be told, is in all paces."""
    sweep = [point.measurement for point in found.points]
    return pace([kind for each in sweep for kind in steps(each.streams, each.started_s)], found.profile)


def rows(found: Calibrated, folder: Path = stored.FOLDER, parts: Sequence[Part] = PARTS) -> Iterator[Row]:
    """Each measured load beside the same requests on the profile."""
    firsts = {load.name: load for load in stored.read(REPEATED[0], folder)[1]}
    usual = sweep_pace(found)
    for part in parts:
        facts, loads = stored.read(part.name, folder)
        for load in loads:
            profile = replace(found.profile, max_num_seqs=facts["max_num_seqs"], kv_tokens=facts["kv_tokens"])
            first = firsts.get(load.name) if part.name in REPEATED[1:] else None
            yield Row(part.name, load, first, profile, usual)


def markdown(found: Iterable[Row]) -> str:
    """Measured → modelled and the error, one row a load; then what the errors are made of."""
    kept = list(found)
    if not kept:
        return "Nothing is stored: `python -m benchmarks.fidelity measure` measures it."
    lines = [f"| engine | load | {' | '.join(COLUMNS)} |", f"|---|---|{'---:|' * len(COLUMNS)}"]
    for row in kept:
        texts = cells(row.seen, row.modelled.figures)
        marked = [
            text if abs(error) <= GOAL else f"{text[: text.rindex(' ')]} **{error:+.1%}**"
            for text, error in zip(texts, row.errors, strict=True)
        ]
        lines.append(f"| {row.part} | {row.name} | {' | '.join(marked)} |")
    lines += ["", _within([error for row in kept for error in row.errors])]
    lines += [
        f"{row.name}: {row.preemptions:.0f} preemptions were seen, {row.modelled.preemptions:.1f} modelled."
        for row in kept
        if row.preemptions
    ]
    lines += _medians(kept)
    lines += _changes("measured again: beside the first time", [(row, row.seen, row.first) for row in kept])
    lines += _repeats(kept)
    title = f"modelled again: an engine that is {SLOWER:.0%} slower beside this one"
    lines += _changes(title, [(row, row.slower, row.modelled.figures) for row in kept])
    return "\n".join([*lines, *_pace(kept)])


def _within(errors: list[float]) -> str:
    sizes = [abs(error) for error in errors]
    return (
        f"{sum(size <= GOAL for size in sizes)} of {len(sizes)} numbers are within {GOAL:.0%}; the median error is "
        f"{percentile(sizes, 0.5):.1%}, nine of ten are under {percentile(sizes, 0.9):.1%}."
    )


def _medians(kept: list[Row]) -> list[str]:
    """The prediction beside what the same arrivals gave, each number the median of the times that it was measured."""
    found: dict[str, list[Row]] = {}
    for row in kept:
        if row.part in REPEATED:
            found.setdefault(row.name, []).append(row)
    times = min(map(len, found.values()), default=0)
    if times < len(REPEATED):
        return []
    title = f"median of {times} times → modelled"
    lines = ["", f"| {title} | {' | '.join(COLUMNS)} |", f"|---|{'---:|' * len(COLUMNS)}"]
    for name, same in found.items():
        seen = Figures(*(percentile(each, 0.5) for each in zip(*(astuple(row.seen) for row in same), strict=True)))
        lines.append(f"| {name} | {' | '.join(cells(seen, same[0].modelled.figures))} |")
    return lines


def _repeats(kept: list[Row]) -> list[str]:
    """How well a measurement predicts another one of the same load, beside how well the model does."""
    found: dict[str, list[Row]] = {}
    for row in kept:
        if row.part in REPEATED:
            found.setdefault(row.name, []).append(row)
    pairs = [pair for same in found.values() for pair in permutations(same, 2)]
    if not pairs:
        return []
    other = _inside([error for one, again in pairs for error in one.seen.errors(again.seen)])
    model = _inside([error for same in found.values() for row in same for error in row.errors])
    return [
        "",
        f"A measurement is within {GOAL:.0%} of another of the same load in {other}, the model in {model}.",
    ]


def _inside(errors: list[float]) -> str:
    count = sum(abs(error) <= GOAL for error in errors)
    return f"{count} of {len(errors)} numbers ({count / len(errors):.0%})"


def _pace(kept: list[Row]) -> list[str]:
    """No prediction: the load itself says how fast the machine was. What is left is queueing and scheduling."""
    found = [(row, row.pace, row.at_pace.errors(row.seen)) for row in kept if row.at_pace and row.pace is not None]
    lines = ["", f"| played at the pace of the load's own steps | steps | {' | '.join(COLUMNS)} |"]
    lines.append(f"|---|---:|{'---:|' * len(COLUMNS)}")
    for row, longer, errors in found:
        lines.append(f"| {row.part}: {row.name} | {longer:+.1%} | {' | '.join(f'{each:+.1%}' for each in errors)} |")
    return [*lines, "", _within([error for _, _, errors in found for error in errors])]


def _changes(title: str, pairs: list[tuple[Row, Figures | None, Figures | None]]) -> list[str]:
    """A table of what is different; none where nothing was done twice."""
    found = [(row, other.errors(one)) for row, other, one in pairs if other is not None and one is not None]
    if not found:
        return []
    lines = ["", f"| {title} | {' | '.join(COLUMNS)} |", f"|---|{'---:|' * len(COLUMNS)}"]
    for row, errors in found:
        lines.append(f"| {row.part}: {row.name} | {' | '.join(f'{each:+.1%}' for each in errors)} |")
    return lines
