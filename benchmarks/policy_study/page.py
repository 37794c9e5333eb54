"""results.json → docs/policy-study.md and its pictures. All numbers come from there; so do the verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import median

from benchmarks.policy_study.cases import (
    COUNTED_S,
    GATEWAYS,
    HOLD_LOADS,
    HOLD_POLICIES,
    LOADS,
    MORE_SEEDS,
    REPLICAS,
    SCRAPES,
    SEEDS,
    SLOWER,
    STRAGGLERS,
    TRACES,
    USUAL_LOAD,
    WARM_S,
    Case,
    cases,
)  # fmt: skip
from benchmarks.policy_study.numbers import SAME, Cell, Comparison, Table, compare
from benchmarks.policy_study.picture import chart
from benchmarks.policy_study.record import Record
from kilocard.routing.registry import POLICIES

DOCS = Path(__file__).parents[2] / "docs"
P95 = "ttft_p95_s"
TITLES = {
    "azure-code": "Azure code", "azure-conv": "Azure conversation", "mooncake-conv": "Mooncake conversation",
    "mooncake-synth": "Mooncake synthetic",
}  # fmt: skip
SHARED = ("mooncake-conv", "mooncake-synth")


def write_page(record: Record, docs: Path = DOCS) -> None:
    table = Table(record.runs)
    folder = docs / "policy-study"
    folder.mkdir(exist_ok=True)
    for trace in TRACES:
        lines = _lines(table, trace)
        if lines:
            title = f"{TITLES[trace]}: 95th percentile of the time to the first token"
            (folder / f"{trace}.svg").write_text(chart(title, "% of capacity", "seconds", lines), encoding="utf-8")
    (docs / "policy-study.md").write_text(page(record, table), encoding="utf-8")


def page(record: Record, table: Table) -> str:
    parts = [_intro(record, table), _method(record), _claims(table), _loads(table), _herding(table), _stragglers(table),
             _mixed(table), _hold(table), _limits()]  # fmt: skip
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


# words and cells


def _case(section: str, trace: str, policy: str, **more: object) -> Case:
    return replace(Case(section, trace, policy, 0), **more)  # type: ignore[arg-type]  # names and types are Case's


def _lines(table: Table, trace: str) -> dict[str, list[tuple[float, float]]]:
    """Of the picture; empty as long as a policy has not been played."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for policy in POLICIES:
        found = ((load, table.cell(P95, _case("load", trace, policy, load=load))) for load in LOADS)
        lines[policy] = [(load, cell.mean) for load, cell in found if cell is not None]
    return lines if all(lines.values()) else {}


def _seconds(cell: Cell | None, *, marked: bool = False) -> str:
    if cell is None:
        return "–"
    digits = 2 if cell.mean < 10 else 1
    text = f"{cell.mean:.{digits}f}"
    if len(cell.by_seed) > 1:
        text += f" ±{cell.half_range:.{digits}f}"
    return f"{text}*" if marked else text


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _grid(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    names = list(head)
    return "\n".join([_row(names), _row("---" for _ in names), *map(_row, rows)])


def _told(found: Comparison) -> str:
    """How one compares with another, in words."""
    if not found.cells:
        return "not played yet"
    ratios = f"median ratio {median(found.ratios):.2f}, from {min(found.ratios):.2f} to {max(found.ratios):.2f}"
    return f"lower in {found.lower} of {found.cells}, higher in {found.higher}, no difference in {found.same}; {ratios}"


def _pairs(
    table: Table, one: str, other: str, number: str = P95, traces: Iterable[str] = TRACES, loads: Iterable[int] = LOADS
) -> Iterator[tuple[Cell, Cell]]:
    for trace, load in product(traces, loads):
        mine = table.cell(number, _case("load", trace, one, load=load))
        theirs = table.cell(number, _case("load", trace, other, load=load))
        if mine is not None and theirs is not None:
            yield mine, theirs


# the page's parts


def _intro(record: Record, table: Table) -> str:
    played, wanted = len(table), sum(1 for _ in cases())
    part = ""
    if played != wanted:
        part = (
            f"\n\n**{wanted - played} of its {wanted} runs are still missing**: the command without `--fresh` goes on "
            "where it stopped. A number without ± is of one seed, and says less."
        )
    return f"""
# Which policy is best, and when

A study with the simulator: the gateway's own dispatcher and policies, over engine models, on four public
traces. This page, its pictures and all numbers on it are made by one command, which takes
{record.cpu_s / 60:.0f} minutes of processor time; don't edit it by hand.{part}

```sh
python -m benchmarks.policy_study --traces DIR --fresh
```

What was asked: does [`queue_depth`](routing.md#policies), the default, beat what other balancers do where
lengths vary? Is `prefix_affinity` first or equal everywhere, so that it could be the default? What do several
gateways, rare readings, stragglers and mixed GPUs change? Does it help to
[hold requests](routing.md#what-a-request-goes-through) in the gateway?
"""


def _method(record: Record) -> str:
    profile = record.settings["profiles"]["a100"]
    rows = []
    for trace in TRACES:
        able = [record.capacities.get(f"{pool}/{trace}") for pool in ("a100", "a100-32", "h100")]
        rows.append([
            TITLES[trace], *("–" if each is None else f"{each:.2f}" for each in able),
            f"{WARM_S[trace]:.0f} + {COUNTED_S[trace]:.0f} s",
        ])  # fmt: skip
    grid = _grid(("trace", "A100", "A100, 32 slots", "H100", "not counted + counted"), rows)
    return f"""
## How it was done

- **Cluster**: {REPLICAS} replicas of Llama 3.1 8B on one A100 80 GB each, vLLM with its default arguments, one
  gateway that reads gauges once a second, unless a section says otherwise. Speeds are the
  [roofline](speed-model.md) of `kilocard plan`, off by
  {100 * (profile["error"] or 0):.0f} % at the median. Policies are compared on the same engines, so that
  matters less here than it does in a plan.
- **Traffic**: [traces](workloads.md), superposed: as many copies as the rate needs, each seen through a window
  of its own, with prompts of its own. Bursts and think times stay what they were. All policies get the same
  arrivals.
- **100 %** is found the same way everywhere: what a replica does in a cluster that gets far more, with
  `queue_depth`, in requests a second (by tokens, since short requests are served first). It is not the most
  that any policy could do: with `prefix_affinity` the caches find more.

{grid}

- **TTFT** is the time from arrival at the gateway to the first token, of requests that arrive after the caches
  and queues have filled. Seconds are means over
  {len(SEEDS)} seeds (other arrivals, other ties; {len(MORE_SEEDS)} where many gateways or two kinds of GPU
  meet Mooncake's conversations, whose p95 hangs on a few very long prompts), ± half of what lies between the
  lowest and the highest. A star: more came than left.
- Two policies differ in a case if all seeds agree on who is lower, by more than {100 * SAME:.0f} % on average;
  anything else is noise.
"""


def _claims(table: Table) -> str:
    lines = ["## What was found", ""]
    for other in ("round_robin", "least_connections", "adaptive"):
        lines.append(f"- p95 TTFT of `queue_depth` beside `{other}`, {len(TRACES)} traces × {len(LOADS)} loads: "
                     f"{_told(compare(_pairs(table, 'queue_depth', other)))}.")  # fmt: skip
    alone = [trace for trace in TRACES if trace not in SHARED]
    same = list(_pairs(table, "prefix_affinity", "queue_depth", traces=alone))
    equal = sum(one.by_seed == other.by_seed for one, other in same)
    lines.append("- Without shared prefixes `prefix_affinity` is `queue_depth`, to the last digit: in "
                 f"{equal} of {len(same)} cases.")  # fmt: skip
    for number, name in ((P95, "p95 TTFT"), ("ttft_mean_s", "mean TTFT"), ("e2e_mean_s", "mean time to the end")):
        found = compare(_pairs(table, "prefix_affinity", "queue_depth", number, SHARED))
        lines.append(f"- With shared prefixes, {name} of `prefix_affinity` beside `queue_depth`: {_told(found)}.")
    first, behind = _first_or_equal(table, "prefix_affinity")
    lines.append(f"- `prefix_affinity` is first or equal in {first} of {first + len(behind)} cases of this study (p95 "
                 f"TTFT, loads, gateways, stragglers, mixed GPUs){'.' if not behind else ':'}")  # fmt: skip
    held = compare(_held(table, "queue_depth")), compare(_held(table, "queue_depth", "ttft_mean_s"))
    if behind:
        lines[-1] += " behind " + "; ".join(behind) + "."
    for name, found in zip(("p95", "mean"), held, strict=True):
        lines.append(f"- {name} TTFT of `queue_depth` with the hold queue beside that without: {_told(found)}.")
    return "\n".join(lines)


def _first_or_equal(table: Table, policy: str) -> tuple[int, list[str]]:
    """In how many cases nobody's p95 is lower than this policy's by more than noise; and where somebody's is."""
    first, behind = 0, []
    for case in dict.fromkeys(replace(each, seed=0, policy=policy) for each in cases() if each.section != "hold"):
        own = table.cell(P95, case)
        if own is None:
            continue
        better = []
        for other in POLICIES:
            theirs = table.cell(P95, replace(case, policy=other))
            if theirs is not None and (found := compare(iter([(own, theirs)]))).higher:
                better.append(f"`{other}` (×{found.ratios[0]:.2f})")
        if better:
            behind.append(f"{', '.join(better)} at {_where(case)}")
        else:
            first += 1
    return first, behind


def _where(case: Case) -> str:
    words = [TITLES[case.trace], f"{case.load} %"]
    if case.section == "herding":
        words.append(f"{case.gateways} gateways, readings each {case.scrape_s:g} s")
    if case.stragglers:
        words.append("stragglers")
    if case.section == "mixed":
        words.append(f"mixed GPUs, weights by {case.weights}")
    return ", ".join(words)


def _loads(table: Table) -> str:
    parts = ["## Load", "", "p95 TTFT in seconds."]
    for trace in TRACES:
        rows = []
        for load in LOADS:
            found = [_case("load", trace, policy, load=load) for policy in POLICIES]
            rows.append([f"{load} %", *(_seconds(table.cell(P95, c), marked=table.overloaded(c)) for c in found)])
        parts += ["", f"### {TITLES[trace]}", ""]
        if _lines(table, trace):
            parts += [f"![p95 TTFT by load](policy-study/{trace}.svg)", ""]
        parts.append(_grid(("load", *POLICIES), rows))
        if trace in SHARED:
            parts += ["", "Share of the prompt tokens that were found in caches:", "", _hits(table, trace)]
    return "\n".join(parts)


def _hits(table: Table, trace: str) -> str:
    rows = []
    for load in (50, 80, 100):
        cells = [table.cell("hit_share", _case("load", trace, policy, load=load)) for policy in POLICIES]
        rows.append([f"{load} %", *("–" if cell is None else f"{100 * cell.mean:.1f} %" for cell in cells)])
    return _grid(("load", *POLICIES), rows)


def _herding(table: Table) -> str:
    rows = []
    for trace, gateways, scrape in product(("azure-code", "mooncake-conv"), GATEWAYS, SCRAPES):
        if trace != "azure-code" and scrape != 1.0:
            continue
        found = [_case("herding", trace, policy, gateways=gateways, scrape_s=scrape) for policy in POLICIES]
        rows.append([TITLES[trace], str(gateways), f"{scrape:g} s", *(_seconds(table.cell(P95, c)) for c in found)])
    return f"""
## Many gateways, rare readings

Gateways that do not see each other's requests, at {USUAL_LOAD} % of capacity; how often each reads the gauges.
p95 TTFT in seconds. `queue_depth` and `adaptive` herded in an earlier version: with 16 gateways they were
behind `least_connections`, which reads no gauge
([how that was mended](decisions/0022-gauges-are-believed-by-our-own-share.md)). Where a gateway has few requests of its
own they still did, and `prefix_affinity` most
([what it was, and numbers with other seeds, sizes and traffic](decisions/0026-gauges-that-are-near-are-a-draw.md)).

{_grid(("trace", "gateways", "readings each", *POLICIES), rows)}
"""


def _stragglers(table: Table) -> str:
    rows = []
    for trace in TRACES:
        cells = [table.cell(P95, _case("stragglers", trace, policy, stragglers=STRAGGLERS)) for policy in POLICIES]
        rows.append([TITLES[trace], *map(_seconds, cells)])
        cells = [table.cell(P95, _case("load", trace, policy, load=USUAL_LOAD)) for policy in POLICIES]
        rows.append(["… all of them healthy", *map(_seconds, cells)])
    return f"""
## Stragglers

{STRAGGLERS} of {REPLICAS} replicas take {SLOWER:g} times as long for each step; {USUAL_LOAD} % of what the
healthy cluster can do. p95 TTFT in seconds.

{_grid(("trace", *POLICIES), rows)}
"""


def _mixed(table: Table) -> str:
    rows = []
    for trace, weights in product(("azure-conv", "mooncake-conv"), ("count", "speed")):
        found = [_case("mixed", trace, policy, pools=("a100", "h100"), weights=weights) for policy in POLICIES]
        rows.append([
            TITLES[trace], f"by {weights}", *(_seconds(table.cell(P95, c), marked=table.overloaded(c)) for c in found)
        ])  # fmt: skip
    return f"""
## Mixed GPUs

Half A100, half H100, in two pools of one model, at {USUAL_LOAD} % of what both can do together. Weights split
the requests before any policy looks; the policy chooses within a pool, and requests go to the other pool when
all replicas of theirs are hot. By count: both pools get as many, so the slow one is always full and its queue is the
p95, whatever the policy. By speed: weights are the pools' capacities. p95 TTFT in seconds.

{_grid(("trace", "weights", *POLICIES), rows)}
"""


def _hold(table: Table) -> str:
    rows = []
    names = {"a100": "default", "a100-32": "32"}
    for trace, pool, load in product(TRACES, names, HOLD_LOADS):
        if pool != "a100" and not trace.startswith("azure"):
            continue
        cells = []
        for policy in HOLD_POLICIES:
            on = _case("hold", trace, policy, load=load, pools=(pool,))
            if pool == "a100":
                on = _case("load", trace, policy, load=load)
            off = _case("hold", trace, policy, load=load, pools=(pool,), hold=False)
            for number in (P95, "ttft_mean_s"):
                cells.append(f"{_seconds(table.cell(number, on))} / {_seconds(table.cell(number, off))}")
        rows.append([TITLES[trace], names[pool], f"{load} %", *cells])
    head = [f"{policy} {number}" for policy in HOLD_POLICIES for number in ("p95", "mean")]
    told = "\n".join(
        f"- `{policy}`, {name} with the hold queue beside that without: {_told(compare(_held(table, policy, number)))}."
        for policy in HOLD_POLICIES
        for number, name in ((P95, "p95"), ("ttft_mean_s", "mean"))
    )
    return f"""
## The hold queue

With it / without: `overheat` set so that no replica is ever hot, and all requests go to the engines at once.
Slots are `max-num-seqs`. TTFT in seconds.

{_grid(("trace", "slots", "load", *head), rows)}

{told}

In the gateway's queue short and long requests take turns, in an engine's the first come are served first; so the
mean can fall while p95, which is that of the long ones, rises.
Where no replica is hot nobody waits in the gateway, and it makes no difference.
"""


def _held(table: Table, policy: str, number: str = P95) -> Iterator[tuple[Cell, Cell]]:
    for trace, pool, load in product(TRACES, ("a100", "a100-32"), HOLD_LOADS):
        on = _case("hold", trace, policy, load=load, pools=(pool,))
        if pool == "a100":
            on = _case("load", trace, policy, load=load)
        with_it = table.cell(number, on)
        without = table.cell(number, _case("hold", trace, policy, load=load, pools=(pool,), hold=False))
        if with_it is not None and without is not None:
            yield with_it, without


def _limits() -> str:
    return """
## What this is not

- A model, not a cluster: engines are as the [simulator](simulate.md#what-it-cant) has them, on a roofline that
  no A100 was measured against. It says which policy is better, less how many milliseconds that is.
- Mooncake's traces come from a service whose cache is far larger than a GPU's. Sixteen caches of one card each
  lose most of what is shared before it is asked for again, so little is left for any policy to find; with
  larger caches, or chats whose turns follow closely, `prefix_affinity` gains
  [several times as much](routing.md#prefix_affinity-prompts-that-begin-alike).
- Lengths of prompts are known exactly here, and answers are declared to be 256 tokens. Sessions by header,
  cancelled requests, tenants and retries are not in these traces.
- Minutes, not hours: queues near and above 100 % would be longer in a longer run.
"""
