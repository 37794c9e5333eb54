"""What was measured, as Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

from benchmarks.bench_truth.rounds import Row

T = TypeVar("T", bound=Hashable)

#: name, Measured's field, how far apart tools may be, judged with answers of one length, and of many
COMPARED = (
    ("output tok/s", "output_tokens_per_s", 0.03, True, False),  # a batch of many lengths empties slowly at the end
    ("TTFT mean", "ttft_s", 0.05, False, True),  # slots that free in one step: how fast a tool sends the next ones
    ("TTFT mean, from the free slot", "ttft_of_slot_s", 0.05, False, True),
    ("TPOT mean", "tpot_s", 0.05, True, True),
    ("e2e mean", "e2e_s", 0.05, True, False),  # follows the lengths that were drawn
)


def agreement(rows: Sequence[Row]) -> tuple[str, bool]:
    """Medians over the rounds, and the first tool beside each other one: the median of the ratios within the rounds,
    since a machine's speed moves from minute to minute. And whether all that is judged is close enough."""
    tools = _in_order(row.measured.tool for row in rows)
    first, *others = tools
    beside = [f"beside {other}" for other in others]
    lines = [f"| load | what | {' | '.join([*tools, *beside])} |", f"|---|---|{'---:|' * (len(tools) + len(beside))}"]
    agree = True
    for place in _in_order(row.place for row in rows):
        here = [row for row in rows if row.place == place]
        spread = here[0].load.spread
        for name, field, limit, with_one, with_many in COMPARED:
            values = {tool: _by_round(here, tool, field) for tool in tools}
            cells = [f"{shown(field, _middle(values[tool]))} ({_apart(values[tool]):.0%})" for tool in tools]
            for other in others:
                ratio = _ratio(values[first], values[other])
                judged = with_many if spread else with_one
                close = abs(ratio - 1) <= limit
                agree &= close or not judged
                cells.append(f"{ratio - 1:+.1%}" + ("" if close else " **too far**" if judged else ", not judged"))
            lines.append(f"| {place} | {name} | {' | '.join(cells)} |")
    lines.append(
        "\nIn brackets: how far the rounds of one tool are apart. Tokens of a request, by each tool's own count:"
    )
    for tool in tools:
        own = [row.measured for row in rows if row.measured.tool == tool]
        counts = [statistics.fmean(getattr(each, name) for each in own) for name in ("input_tokens", "output_tokens")]
        lines.append(f"- {tool}: {counts[0]:.1f} in, {counts[1]:.1f} out")
    return "\n".join(lines), agree


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
    parts = [f"{name} {shown(field, getattr(row.measured, field))}" for name, field, *_ in COMPARED]
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


def _ratio(values: dict[int, float], others: dict[int, float]) -> float:
    return statistics.median(value / others[each] for each, value in values.items() if each in others)
