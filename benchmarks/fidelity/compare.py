"""What was measured beside what the profile says, as a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, replace
from pathlib import Path

from benchmarks.fidelity import stored
from benchmarks.fidelity.loads import PARTS
from benchmarks.fidelity.measure import calibration_run
from kilocard.cli.calibration_base import Told, base
from kilocard.cli.calibration_run import read_run
from kilocard.core.statistics import percentile
from kilocard.sim.calibrated import Calibrated, calibrated
from kilocard.sim.fidelity import Figures, measured, modelled

#: what is aimed at
GOAL = 0.10
COLUMNS = ("tokens/s", "TTFT p50", "TTFT p95", "TPOT p50", "TPOT p95")
#: a part that measures the same arrivals and lengths once more: what differs there is noise
AGAIN = "again"
REPEATED = "rates"


@dataclass(frozen=True)
class Row:
    part: str
    name: str
    seen: Figures
    modelled: Figures
    requests: int
    preemptions: float | None
    #: the same load, measured once more
    again: Figures | None = None

    @property
    def errors(self) -> tuple[float, ...]:
        return self.modelled.errors(self.seen)

    @property
    def noise(self) -> tuple[float, ...] | None:
        return None if self.again is None else self.again.errors(self.seen)


def fitted(folder: Path = stored.FOLDER) -> Calibrated:
    """The profile, from the calibration's sweep and what the engine said of itself. Nothing else goes into it."""
    with calibration_run(folder) as run_folder:
        run = read_run(run_folder, even_limited=True)
        return calibrated(run.measurements, base(run.results, Told()), run.alone)


def rows(found: Calibrated, folder: Path = stored.FOLDER) -> Iterator[Row]:
    """Each measured load beside the same requests on the profile."""
    _, second = stored.read(AGAIN, folder)
    repeats = {load.name: load for load in second}
    for part in PARTS:
        facts, loads = stored.read(part.name, folder)
        for load in loads:
            profile = replace(found.profile, max_num_seqs=facts["max_num_seqs"], kv_tokens=facts["kv_tokens"])
            measurement = load.measurement
            repeat = repeats.get(load.name) if part.name == REPEATED else None
            yield Row(
                part.name,
                load.name,
                measured(measurement),
                modelled(measurement, profile),
                len(load.rows),
                load.preemptions,
                None if repeat is None else measured(repeat.measurement),
            )


def markdown(found: Iterable[Row]) -> str:
    """Measured → modelled and the error, one row a load."""
    kept = list(found)
    if not kept:
        return "Nothing is stored: `python -m benchmarks.fidelity measure` measures it."
    lines = [f"| engine | load | {' | '.join(COLUMNS)} |", f"|---|---|{'---:|' * len(COLUMNS)}"]
    for row in kept:
        cells = [
            _cell(*each) for each in zip(astuple(row.seen), astuple(row.modelled), row.errors, COLUMNS, strict=True)
        ]
        lines.append(f"| {row.part} | {row.name} | {' | '.join(cells)} |")
    errors = [abs(error) for row in kept for error in row.errors]
    within = sum(error <= GOAL for error in errors)
    lines += [
        "",
        f"{within} of {len(errors)} numbers are within {GOAL:.0%}; the median error is {percentile(errors, 0.5):.1%}, "
        f"nine of ten are under {percentile(errors, 0.9):.1%}.",
    ]
    noisy = [row for row in kept if row.noise is not None]
    if noisy:
        lines += ["", f"| measured twice, the second beside the first | {' | '.join(COLUMNS)} |"]
        lines.append(f"|---|{'---:|' * len(COLUMNS)}")
        lines += [f"| {row.name} | {' | '.join(f'{each:+.1%}' for each in row.noise or ())} |" for row in noisy]
    return "\n".join(lines)


def _cell(seen: float, said: float, error: float, column: str) -> str:
    text = f"{error:+.1%}" if abs(error) <= GOAL else f"**{error:+.1%}**"
    if column == "tokens/s":
        return f"{seen:.0f} → {said:.0f} {text}"
    return f"{_time(seen)} → {_time(said)} {text}"


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"
