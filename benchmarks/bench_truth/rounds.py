"""What was measured, round by round, and where it is kept: rounds of several quiet minutes belong together."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.bench_truth.engine_says import EngineSays
from benchmarks.bench_truth.load import Load
from benchmarks.bench_truth.measured import Measured


@dataclass(frozen=True)
class Row:
    """One run of one tool."""

    #: tools of one round and load ran one after the other, so that they can be set against each other
    round: int
    load: Load
    measured: Measured
    engine: EngineSays

    @property
    def place(self) -> str:
        return self.load.place


def write(rows: Iterable[Row], path: Path) -> None:
    path.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


def read(paths: Sequence[Path]) -> list[Row]:
    return joined([_row(said) for said in json.loads(path.read_text())] for path in paths)


def joined(measured: Iterable[Sequence[Row]]) -> list[Row]:
    """Of several times that were measured; rounds of a later one come after those of the ones before."""
    rows: list[Row] = []
    for each in measured:
        after = 1 + max((row.round for row in rows), default=-1)
        rows += [replace(row, round=after + row.round) for row in each]
    return rows


def _row(said: dict[str, Any]) -> Row:
    return Row(said["round"], Load(**said["load"]), Measured(**said["measured"]), EngineSays(**said["engine"]))
