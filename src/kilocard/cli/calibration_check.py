"""`kilocard calibrate --check`: does the profile hold at loads that it was not fitted to?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from typing import Any

from rich.table import Table

from kilocard.bench.document import Results
from kilocard.cli.calibration_base import slots_seen
from kilocard.cli.calibration_run import read_run
from kilocard.cli.output import results
from kilocard.core.errors import UsageError
from kilocard.perf.profile import Profile
from kilocard.sim.fidelity import Figures, measured, modelled
from kilocard.sim.prediction import Measurement

_COLUMNS = ("tokens/s", "TTFT p50", "TTFT p95", "TPOT p50", "TPOT p95")


@dataclass(frozen=True, slots=True)
class Checked:
    """One load of another run."""

    run: str
    label: str
    requests: int
    seen: Figures
    modelled: Figures

    @property
    def errors(self) -> tuple[float, ...]:
        return self.modelled.errors(self.seen)


def check(runs: Sequence[Path], profile: Profile) -> list[Checked]:
    """Every load of `runs` beside the same requests on the profile, with the slots and the cache of that run's engine.

    Raises UsageError for a folder that holds no run, EngineError for a request that the engine could never hold.
    """
    found = []
    for folder in runs:
        run = read_run(folder, even_limited=True)
        room = _with_room_of(run.results, profile)
        found += [_checked(folder.name, measurement, room) for measurement in run.measurements]
    return found


def show_checked(checked: Sequence[Checked]) -> None:
    results.print("\nLoads that were not fitted: seen → modelled", style="bold")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("run", "load", *_COLUMNS):
        table.add_column(column, justify="left" if column in {"run", "load"} else "right")
    for each in checked:
        table.add_row(each.run, each.label, *cells(each.seen, each.modelled))
    results.print(table)


def checked_document(checked: Sequence[Checked]) -> list[dict[str, Any]]:
    return [
        {
            "run": each.run,
            "label": each.label,
            "requests": each.requests,
            "measured": asdict(each.seen),
            "modelled": asdict(each.modelled),
        }
        for each in checked
    ]


def cells(seen: Figures, said: Figures) -> list[str]:
    """`seen → modelled error`, in the order of the fields."""
    texts = []
    for place, (was, says) in enumerate(zip(astuple(seen), astuple(said), strict=True)):
        error = f"{says / was - 1:+.1%}"
        texts.append(f"{was:.0f} → {says:.0f} {error}" if not place else f"{_time(was)} → {_time(says)} {error}")
    return texts


def _checked(run: str, measurement: Measurement, profile: Profile) -> Checked:
    try:
        seen = measured(measurement)
    except ValueError:
        raise UsageError(
            f"--check {run}: no request of {measurement.label} was answered with more than a token"
        ) from None
    return Checked(run, measurement.label, len(measurement.streams), seen, modelled(measurement, profile).figures)


def _with_room_of(run: Results, profile: Profile) -> Profile:
    """What the run's engine was started with may differ; what the bench did not see of it is taken as the same."""
    target = run.target
    return replace(
        profile,
        kv_tokens=target.kv_tokens or profile.kv_tokens,
        max_num_seqs=target.max_num_seqs or slots_seen(run) or profile.max_num_seqs,
        block_size=target.block_size or profile.block_size,
    )


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"
