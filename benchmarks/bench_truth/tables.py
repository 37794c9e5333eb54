"""What was measured, as Markdown."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from benchmarks.bench_truth.load import Load
from benchmarks.bench_truth.rounds import Row
from benchmarks.bench_truth.verdict import Beside, Verdict, beside

T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True)
class Compared:
    """One quantity."""

    name: str
    #: of Measured
    field: str
    #: how far apart tools may be, a share
    limit: float
    #: of which loads it is judged; of the others it is shown
    judged: Callable[[Load], bool]


COMPARED = (
    # a batch of many lengths empties slowly at the end, which the peers count
    Compared("output tok/s", "output_tokens_per_s", 0.03, lambda load: not load.spread),
    Compared("output tok/s, all slots busy", "full_tokens_per_s", 0.03, lambda load: bool(load.spread)),
    # Beside others a request that is sent later in a step waits less for the step: the later a tool starts its clock,
    # the less it says. Alone it finds an idle server.
    Compared("TTFT mean", "ttft_s", 0.05, lambda load: load.concurrency == 1),
    # with one length all slots are free in one step: how fast a tool sends the next ones
    Compared("TTFT mean, from the free slot", "ttft_of_slot_s", 0.05, lambda load: bool(load.spread)),
    Compared("TPOT mean", "tpot_s", 0.05, lambda load: True),
    # follows the lengths that were drawn
    Compared("e2e mean", "e2e_s", 0.05, lambda load: not load.spread),
)


@dataclass(frozen=True)
class Judged:
    """The first tool beside another one, in one quantity of one load."""

    place: str
    what: Compared
    other: str
    beside: Beside
    #: does the verdict count?
    counts: bool

    def __str__(self) -> str:
        if not self.counts:
            return f"{self.beside}, not judged"
        verdict = self.beside.verdict
        return f"{self.beside}" + {Verdict.AGREE: "", Verdict.APART: " **too far**"}.get(verdict, f", {verdict}")


def judged(rows: Sequence[Row]) -> list[Judged]:
    """In the order of the table."""
    first, *others = _in_order(row.measured.tool for row in rows)
    found = []
    for place in _in_order(row.place for row in rows):
        here = [row for row in rows if row.place == place]
        for what in COMPARED:
            own = _by_round(here, first, what.field)
            for other in others:
                theirs = _by_round(here, other, what.field)
                ratios = [value / theirs[each] for each, value in own.items() if each in theirs]
                near = beside([ratio for ratio in ratios if not math.isnan(ratio)], what.limit)
                found.append(Judged(place, what, other, near, what.judged(here[0].load)))
    return found


def verdict(rows: Sequence[Row], place: str | None = None) -> Verdict:
    """Of all that counts, or of one load: too far where one is, and else not decided where one is not."""
    verdicts = {each.beside.verdict for each in judged(rows) if each.counts and place in {None, each.place}}
    return next((each for each in (Verdict.APART, Verdict.OPEN) if each in verdicts), Verdict.AGREE)


def agreement(rows: Sequence[Row]) -> str:
    """Medians over the rounds, and the first tool beside each other one."""
    tools = _in_order(row.measured.tool for row in rows)
    names = [f"beside {other}" for other in tools[1:]]
    lines = [f"| load | what | {' | '.join([*tools, *names])} |", f"|---|---|{'---:|' * (len(tools) + len(names))}"]
    found = {(each.place, each.what, each.other): each for each in judged(rows)}
    for place in _in_order(row.place for row in rows):
        here = [row for row in rows if row.place == place]
        for what in COMPARED:
            values = [_by_round(here, tool, what.field) for tool in tools]
            cells = [f"{shown(what.field, _middle(each))} ({_apart(each):.0%})" for each in values]
            cells += [str(found[place, what, other]) for other in tools[1:]]
            lines.append(f"| {place}, {len(values[0])} rounds | {what.name} | {' | '.join(cells)} |")
    lines.append(
        "\nIn brackets: how far the rounds of one tool are apart, and the 95 % interval of the ratio of two. Tokens of "
        "a request by each tool's own count, and what it takes from a free slot to the start of its clock:"
    )
    for tool in tools:
        own = [row.measured for row in rows if row.measured.tool == tool]
        counts = [statistics.fmean(getattr(each, name) for each in own) for name in ("input_tokens", "output_tokens")]
        late = statistics.median(each.turnaround_s for each in own)
        lines.append(f"- {tool}: {counts[0]:.1f} in, {counts[1]:.1f} out; {late * 1e3:.1f} ms")
    return "\n".join(lines)


def engine(rows: Sequence[Row]) -> str:
    """Each tool beside what the engine counted while that tool measured. Medians over the rounds."""
    lines = ["| load | tool | TPOT: tool, engine | off | e2e: tool, engine | off |", "|---|---|---:|---:|---:|---:|"]
    for place, tool in _in_order((row.place, row.measured.tool) for row in rows):
        here = [row for row in rows if (row.place, row.measured.tool) == (place, tool)]
        cells = []
        for field in ("tpot_s", "e2e_s"):
            said = statistics.median(getattr(row.measured, field) for row in here)
            counted = statistics.median(getattr(row.engine, field) for row in here)
            off = statistics.median(getattr(row.measured, field) / getattr(row.engine, field) - 1 for row in here)
            cells.append(f"{shown(field, said)}, {shown(field, counted)} | {off:+.1%}")
        lines.append(f"| {place} | {tool} | {' | '.join(cells)} |")
    return "\n".join(lines)


def line(row: Row) -> str:
    """One run, for who watches."""
    parts = [f"{each.name} {shown(each.field, getattr(row.measured, each.field))}" for each in COMPARED]
    return f"{row.place}  {row.measured.tool:17} {', '.join(parts)}"


def shown(field: str, value: float) -> str:
    return f"{value:.1f}" if field.endswith("per_s") else f"{value * 1e3:.1f} ms"


def _in_order(values: Iterable[T]) -> list[T]:
    return list(dict.fromkeys(values))


def _by_round(rows: Sequence[Row], tool: str, field: str) -> dict[int, float]:
    return {row.round: getattr(row.measured, field) for row in rows if row.measured.tool == tool}


def _middle(values: dict[int, float]) -> float:
    return statistics.median(values.values())


def _apart(values: dict[int, float]) -> float:
    return max(values.values()) / min(values.values()) - 1
