"""What `kilocard simulate` prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.box import SIMPLE
from rich.table import Table

from kilocard.bench.units import number, seconds, share
from kilocard.cli.output import results

COLUMNS = ("policy", "state", "done", "refused", "tok/s", "TTFT p50", "p95", "p99", "TPOT p50", "p95", "e2e p95",
            "in SLO", "GPU h", "preempted", "hits", "spread")  # fmt: skip

#: changes of the number of replicas that are printed
EVENTS = 12


def show(document: Mapping[str, Any]) -> None:
    for line in told(document):
        results.print(line, soft_wrap=True)
    for name, pool in document["pools"].items():
        results.print(f"  {name}: {pool['replicas']} × {pool['speed']}", soft_wrap=True)
    table = Table(*COLUMNS, box=SIMPLE, pad_edge=False, collapse_padding=True)
    for column in table.columns:
        column.no_wrap = True
        column.justify = "right"
    table.columns[0].justify = table.columns[1].justify = "left"
    for name, found in document["policies"].items():
        table.add_row(name, *row(found))
    results.print(table)
    for name, found in document["policies"].items():
        for line in doubts(found):
            results.print(f"  ! {name}: {line}", soft_wrap=True)
        _tenants(name, found["tenants"])
        for line in scaled(found["scaling"]):
            results.print(f"{name}: {line}", soft_wrap=True)


def told(document: Mapping[str, Any]) -> list[str]:
    """What was asked of what."""
    work, slo = document["workload"], document["slo"]
    gateways = f"{document['gateways']} gateway{'s' if document['gateways'] > 1 else ''}"
    unknown = work["unknown_model"]
    other = [f"{_requests(unknown)} for models that the cluster does not have went to its first one"] if unknown else []
    return [
        f"{_requests(document['requests'])} {_when(work)}"
        f"{number(work['input_tokens']['mean'])} tokens in, {number(work['output_tokens']['mean'])} out) on "
        f"{document['replicas']:,} replica{'s' if document['replicas'] != 1 else ''}, {gateways}, "
        f"read every {seconds(document['signals']['scrape_s'])}",
        f"SLO: first token within {seconds(slo['ttft_s'])}, {seconds(slo['tpot_s'])} a token after it",
        *other,
    ]


def _when(work: Mapping[str, Any]) -> str:
    """With the bracket that the lengths go on in."""
    if not work["span_s"]:
        return "at one moment ("
    return f"in {seconds(work['span_s'])} ({number(work['rate_per_s'])}/s, "


def row(found: Mapping[str, Any]) -> list[str]:
    ttft, tpot, e2e = found["ttft_s"], found["tpot_s"], found["e2e_s"]
    hits = found["prefix_hit_share"]
    spread = found["balance"]["spread_mean"]
    return [
        found["state"],
        f"{found['completed']:,}",
        f"{found['rejected'] + found['failed']:,}",
        number(found["output_tokens_per_s"]),
        *(_seconds(ttft, key) for key in ("p50", "p95", "p99")),
        *(_seconds(tpot, key) for key in ("p50", "p95")),
        _seconds(e2e, "p95"),
        "–" if found["goodput_share"] is None else share(found["goodput_share"]),
        number(found["gpu_hours"]),
        f"{found['preemptions']:,}",
        "–" if hits is None else share(hits),
        "–" if spread is None else number(spread),
    ]


def _seconds(found: Mapping[str, float] | None, key: str) -> str:
    return "–" if found is None else seconds(found[key])


def doubts(found: Mapping[str, Any]) -> list[str]:
    """What a reader of the percentiles has to know."""
    lines = []
    if found["state"] == "overloaded":
        lines.append(
            "more requests come than leave, or over 1 % were turned away or broke off: the percentiles are of this "
            "run's length and of those that were answered"
        )
    if found["state"] == "too_short":
        lines.append("too few requests to tell whether it keeps up")
    for code, count in found["refusals"].items():
        lines.append(f"{_requests(count)} ended with {code}")
    for end in ("unfinished", "cancelled", "not_asked"):
        if found[end]:
            lines.append(f"{_requests(found[end])} {end.replace('_', ' ')}")
    return lines


def scaled(found: Mapping[str, Any] | None) -> list[str]:
    """How pools grew and shrank, and the first changes with their reasons."""
    if found is None:
        return []
    lines = [
        f"{pool} had {its['least']} to {its['most']} replicas, {number(its['mean'] or 0.0)} on average; it grew "
        f"{its['grew']} times and shrank {its['shrank']}"
        for pool, its in found["pools"].items()
    ]
    events = found["events"]
    lines += [
        f"  {seconds(each['at_s'])}  {each['pool']} {each['have']} → {each['wanted']}  {each['reason']}: "
        f"{each['sentence']}"
        for each in events[:EVENTS]
    ]
    if len(events) > EVENTS:
        lines.append(f"  and {len(events) - EVENTS} more: --json has them")
    return lines


def _requests(count: int) -> str:
    return "1 request" if count == 1 else f"{count:,} requests"


def _tenants(name: str, tenants: Mapping[str, Any] | None) -> None:
    if tenants is None:
        return
    results.print(f"{name}: tenants, Jain's index {number(tenants['jain'] or 0.0)}")
    for tenant, its in tenants["by_name"].items():
        results.print(
            f"  {tenant}: {its['completed']:,} of {its['requests']:,} requests, {its['output_tokens']:,} tokens, "
            f"TTFT p95 {_seconds(its['ttft_s'], 'p95')}, {share(its['goodput_share'])} within SLO",
        )
