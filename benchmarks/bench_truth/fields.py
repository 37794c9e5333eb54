"""What does a field of the request cost? One load tester, one load, several bodies in turns.

Tools that ask the same server for the same tokens may send different requests, which are different work for it.
"""

from __future__ import annotations

import secrets
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.bench_truth import kilocard_bench
from benchmarks.bench_truth.engine_says import Counters, EngineSays
from benchmarks.bench_truth.load import Load
from benchmarks.bench_truth.measured import Measured

#: what is sent more than kilocard's own body (temperature 0, usage once at the end); null: the field is not sent
BODIES: Mapping[str, Mapping[str, Any]] = {
    "temperature 0, usage at the end": {},
    "repetition_penalty 1": {"repetition_penalty": 1.0},
    "usage in each chunk": {"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
    "no temperature": {"temperature": None},
    "both of these": {
        "temperature": None,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    },
}

_VALUES: tuple[tuple[float, Callable[[tuple[Measured, EngineSays]], float]], ...] = (
    (1.0, lambda row: row[0].output_tokens_per_s),
    (1e3, lambda row: row[0].tpot_s),
    (1e3, lambda row: row[1].tpot_s),
)


def cost(url: str, load: Load, rounds: int, folder: Path) -> str:
    """A table."""
    names = list(BODIES)
    rows: dict[str, list[tuple[Measured, EngineSays]]] = {name: [] for name in names}
    for number in range(rounds):
        # another order in each round: who comes first has the cooler processor
        for name in names[number % len(names) :] + names[: number % len(names)]:
            new = replace(load, seed=secrets.randbelow(1_000_000_000))
            before = Counters.read(url)
            measured = kilocard_bench.run(url, new, folder, BODIES[name])
            rows[name].append((measured, before.until(Counters.read(url))))
            print(f"{load.concurrency} at once, {name:30} {measured.output_tokens_per_s:.1f} tok/s", file=sys.stderr)
    return _table(rows, load)


def _table(rows: Mapping[str, Sequence[tuple[Measured, EngineSays]]], load: Load) -> str:
    lines = [
        f"| {load.concurrency} at once, in the body | tok/s | | TPOT, ms | | engine's TPOT, ms | |",
        f"|---|{'---:|' * 6}",
    ]
    first = next(iter(rows.values()))
    for name, each in rows.items():
        cells = []
        for scale, value in _VALUES:
            # beside the first body within each round: a machine's speed moves from minute to minute
            ratio = statistics.median(value(row) / value(base) for row, base in zip(each, first, strict=True))
            cells.append(f"{statistics.median(map(value, each)) * scale:.1f} | {ratio - 1:+.1%}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)
