"""What changed between two runs, and is it more than noise?

A load that both measured twice or more is judged by its repeats (Welch's t test on one number for each repeat). A
single run on a side is judged by blocks of its requests.jsonl; such an interval lacks what differs between runs, so the
change has to be larger before it counts. With neither, the difference is shown and not judged.

Many numbers are compared at once: p-values are adjusted (Holm 1979), so that of a hundred comparisons of a server with
itself five give any false alarm, not all. Loads at which the two did different work are shown and not judged.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta, Struct, field

from kilocard.bench import blocks
from kilocard.bench.blocks import Blocks, Value
from kilocard.bench.curve import Load, closed, opened
from kilocard.bench.document import Finding, Results, Spread
from kilocard.bench.requests_log import Line
from kilocard.bench.results import named
from kilocard.bench.same_work import ERRORS, setting, work
from kilocard.core.confidence import LEVEL, difference, t_cdf, t_quantile
from kilocard.core.statistics import deviation, mean

Verdict = Literal["faster", "slower", "noise", "unknown", "different work"]

#: smaller changes are noise whatever the test says: repeats of public points scatter by 1 to 2 %
FLOOR = 0.02
#: the same with one run on a side. Repeats differ by 9 % (TPOT) and 24 % (TTFT) at their 90th percentile
#: in AIConfigurator's 205 points that were measured twice; a tail scatters most
FLOOR_OF_ONE, FLOOR_OF_ONE_TAIL = 0.05, 0.10
DRAWS = 400


class Metric(NamedTuple):
    name: str
    higher_is_better: bool
    of_point: str
    share: str = ""


METRICS = (
    Metric("output_tokens_per_s", True, "output_tokens_per_s"),
    Metric("ttft_s.p50", False, "ttft_s", "p50"),
    Metric("ttft_s.p95", False, "ttft_s", "p95"),
    Metric("ttft_s.p99", False, "ttft_s", "p99"),
    Metric("tpot_s.p50", False, "tpot_s", "p50"),
    Metric("tpot_s.p95", False, "tpot_s", "p95"),
    Metric("itl_s.p99", False, "itl_s", "p99"),
    Metric("e2e_s.p50", False, "e2e_s", "p50"),
    Metric("e2e_s.p95", False, "e2e_s", "p95"),
)
_SHARES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}
_OF_RECORD: dict[str, Value] = {
    "ttft_s": lambda record: record.ttft_s,
    "tpot_s": lambda record: record.tpot_s,
    "e2e_s": lambda record: record.e2e_s,
}


class Row(Struct, kw_only=True):
    """One metric at one load: B against A."""

    load: Annotated[str, Meta(description="in words: 16 in flight")]
    concurrency: int | None = None
    rate_per_s: float | None = None
    metric: str
    a: float
    b: float
    change: Annotated[float | None, Meta(description="share of A: 0.05 is 5 % more")]
    low: Annotated[float | None, Meta(description="95 % interval of `change`; null: not known")] = None
    high: float | None = None
    p_value: Annotated[float | None, Meta(description="adjusted for all rows (Holm)")] = None
    by: Annotated[Literal["repeats", "blocks", "nothing"], Meta(description="what the interval comes from")]
    verdict: Verdict
    why: str


class Comparison(Struct, kw_only=True):
    """What `--compare A B --json` prints."""

    schema: str = "kilocard.compare/1"
    a: str
    b: str
    verdict: Annotated[
        Literal["faster", "slower", "mixed", "noise", "unknown"],
        Meta(description="of B, over all rows that were judged"),
    ]
    says: list[str]
    rows: list[Row]
    findings: list[Finding] = field(default_factory=list)
    worse: Annotated[
        list[str], Meta(description="why B must not pass for as good as A: slower, failing, or nothing was judged")
    ] = field(default_factory=list)

    @property
    def regressions(self) -> list[Row]:
        """What became slower, beyond noise."""
        return [row for row in self.rows if row.verdict == "slower"]


def compare(
    a: Results,
    b: Results,
    *,
    names: tuple[str, str] = ("A", "B"),
    requests: tuple[Sequence[Line], Sequence[Line]] = ((), ()),
    seed: int = 0,
) -> Comparison:
    """`requests`: the lines of both requests.jsonl, where they are there."""
    rng = random.Random(seed)  # noqa: S311  # resampling, no secret; the same files give the same answer
    findings = setting(a, b)
    rows: list[Row] = []
    pairs, lonely = _matched(a, b)
    for load, other in pairs:
        other_work = work(load, other)
        if other_work:
            findings += [Finding(severity="warning", text=f"{_name(load)}: {text}.") for text in other_work]
        cuts = (_cut(a, load, requests[0]), _cut(b, other, requests[1]))
        for metric in METRICS:
            row = _row(metric, load, other, cuts, rng)
            if row is not None:
                rows.append(row)
                if other_work:
                    row.verdict, row.why = "different work", other_work[0]
    if lonely:
        findings.append(Finding(severity="note", text=f"Only one of the two has numbers at {', '.join(lonely)}."))
    if not pairs:
        findings.append(
            Finding(severity="error", text="The two runs have no load in common: there is nothing to compare.")
        )
    _judge(rows)
    return Comparison(
        a=names[0], b=names[1], verdict=_overall(rows), says=_says(rows, a, b), rows=rows, findings=findings,
        worse=_worse(rows, pairs),
    )  # fmt: skip


def _worse(rows: Sequence[Row], pairs: Sequence[tuple[Load, Load]]) -> list[str]:
    """A gate that asks for the exit code has to hear of all three."""
    found = []
    if slower := [row for row in rows if row.verdict == "slower"]:
        found.append(f"B is slower in {len(slower)} numbers")
    if failing := [_name(load) for load, other in pairs if other.error_share > load.error_share + ERRORS]:
        found.append(f"more of B's requests failed at {', '.join(failing)}")
    if not found and not any(row.verdict in ("faster", "noise") for row in rows):
        found.append("nothing could be judged")
    return found


def _matched(a: Results, b: Results) -> tuple[list[tuple[Load, Load]], list[str]]:
    """Loads that both have, in order, and the names of those that one has."""
    pairs: list[tuple[Load, Load]] = []
    lonely: list[str] = []
    for split in (closed, opened):
        first, second = ({load.load: load for load in split(each.points)} for each in (a, b))
        pairs += [(first[at], second[at]) for at in sorted(first.keys() & second.keys())]
        lonely += [_name((first | second)[at]) for at in sorted(first.keys() ^ second.keys())]
    traces = [tuple(p for p in each.points if p.concurrency is None and p.rate_per_s is None) for each in (a, b)]
    if all(traces):
        pairs.append((Load(0.0, traces[0]), Load(0.0, traces[1])))
    return pairs, lonely


def _row(metric: Metric, a: Load, b: Load, cuts: tuple[Blocks | None, Blocks | None], rng: random.Random) -> Row | None:
    first, second = _values(metric, a), _values(metric, b)
    if not first or not second:
        return None
    before, after = mean(first), mean(second)
    point = a.repeats[0]
    row = Row(
        load=_name(a), concurrency=point.concurrency, rate_per_s=point.rate_per_s, metric=metric.name, a=before,
        b=after, change=(after - before) / before if before else None, by="nothing", verdict="unknown",
        why="one run on a side, and too short for blocks",
    )  # fmt: skip
    if len(first) > 1 and len(second) > 1:
        test = difference(first, second)
        row.by, row.p_value = "repeats", test.p_value
        if before and test.low is not None and test.high is not None:
            row.low, row.high = test.low / before, test.high / before
    elif cuts[0] is not None and cuts[1] is not None:
        _by_blocks(row, metric, cuts[0], cuts[1], rng)
    return row


def _by_blocks(row: Row, metric: Metric, a: Blocks, b: Blocks, rng: random.Random) -> None:
    value = _OF_RECORD.get(metric.of_point)
    if not metric.share:
        draws = [blocks.throughput(each, rng, DRAWS) for each in (a, b)]
    elif value is not None:
        draws = [blocks.percentile(each, value, _SHARES[metric.share], rng, DRAWS) for each in (a, b)]
    else:
        row.why = "gaps are compared by repeats only"
        return
    if not row.a or not all(draws):
        return
    # The spread of the resamples, and Student's t for so few blocks: percentiles of resamples alone are too sure.
    counts = [len(each.tokens) for each in (a, b)]
    errors = [deviation(each) ** 2 * n / (n - 1) for each, n in zip(draws, counts, strict=True)]
    error = math.sqrt(sum(errors)) / row.a
    if error == 0 or row.change is None:
        return
    freedom = sum(counts) - 2
    half = t_quantile((1 + LEVEL) / 2, freedom) * error
    row.by, row.low, row.high = "blocks", row.change - half, row.change + half
    row.p_value = 2 * (1 - t_cdf(abs(row.change) / error, freedom))


def _values(metric: Metric, load: Load) -> list[float]:
    """One for each repeat."""
    values = []
    for point in load.repeats:
        value = getattr(point, metric.of_point)
        if isinstance(value, Spread):
            if metric.share in value.few or metric.share in value.at_least:
                continue
            value = getattr(value, metric.share)
        if value is not None:
            values.append(float(value))
    return values


def _judge(rows: Sequence[Row]) -> None:
    """Adjusts the p-values and gives the verdicts."""
    judged = sorted(
        (row for row in rows if row.p_value is not None and row.verdict != "different work"),
        key=lambda row: row.p_value or 0,
    )
    least = 0.0
    for place, row in enumerate(judged):
        least = max(least, min(1.0, (row.p_value or 0.0) * (len(judged) - place)))
        row.p_value = least
        change = row.change or 0.0
        floor = (
            FLOOR if row.by == "repeats" else FLOOR_OF_ONE_TAIL if row.metric.endswith(("95", "99")) else FLOOR_OF_ONE
        )
        if row.p_value > 1 - LEVEL:
            row.verdict, row.why = "noise", f"chance gives as much in {row.p_value:.0%} of cases"
        elif abs(change) < floor:
            row.verdict, row.why = "noise", f"under {floor:.0%}, which runs differ by anyhow"
        else:
            better = (change > 0) == next(m.higher_is_better for m in METRICS if m.name == row.metric)
            row.verdict = "faster" if better else "slower"
            row.why = "repeats agree" if row.by == "repeats" else "beyond the scatter within each run"


def _overall(rows: Sequence[Row]) -> Literal["faster", "slower", "mixed", "noise", "unknown"]:
    seen = {row.verdict for row in rows}
    if {"faster", "slower"} <= seen:
        return "mixed"
    for verdict in ("faster", "slower", "noise"):
        if verdict in seen:
            return verdict
    return "unknown"


def _says(rows: Sequence[Row], a: Results, b: Results) -> list[str]:
    said = []
    judged = [row for row in rows if row.verdict in ("faster", "slower", "noise")]
    for verdict in ("slower", "faster"):
        hits = [row for row in judged if row.verdict == verdict and row.change is not None]
        if hits:
            worst = max(hits, key=lambda row: abs(row.change or 0.0))
            said.append(
                f"B is {verdict} in {len(hits)} of {len(judged)} numbers; most in {worst.metric} at {worst.load}: "
                f"{worst.change:+.1%}."
            )
    if judged and not said:
        widest = max((row.high or 0.0) - (row.low or 0.0) for row in judged)
        said.append(f"No difference beyond noise in {len(judged)} numbers; the widest interval is ±{widest / 2:.0%}.")
    if not judged:
        said.append("Nothing could be judged: measure each load at least twice (--repeats 3).")
    knees = [each.knee.concurrency if each.knee.concurrency is not None else each.knee.rate_per_s for each in (a, b)]
    if knees[0] != knees[1]:
        said.append("The knee moved from {} to {}.".format(*("not reached" if k is None else f"{k:g}" for k in knees)))
    if a.limit != b.limit:
        said.append(f"The limit was {a.limit} and is {b.limit}.")
    return said


def _cut(results: Results, load: Load, lines: Sequence[Line]) -> Blocks | None:
    """Of the first repeat: with more, repeats are what judges."""
    point = load.repeats[0]
    place = next((number for number, each in enumerate(results.points) if each is point), None)
    mine = [line for line in lines if line.point == place]
    return blocks.cut(
        [line.record for line in mine if not line.carried],
        [line.record for line in mine if line.carried],
        point.started_s,
        point.window_s,
    )


def _name(load: Load) -> str:
    return named(load.repeats[0]).removesuffix(f" (repeat {load.repeats[0].repeat + 1})")
