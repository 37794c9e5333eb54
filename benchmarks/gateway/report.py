"""Medians over rounds, ratios to nginx of the same round, and the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

BASE = "nginx"
#: below this many reads a chunk, chunks were passed on together, which is cheaper: not the cost of one chunk
SINGLE = 0.9
Rounds = Sequence[Mapping[str, Mapping[str, Any]]]


def summary(rounds: Rounds) -> dict[str, dict[str, Any]]:
    """Per proxy: medians, ranges, and the median of each round's ratio to nginx (None without nginx)."""
    names = dict.fromkeys(name for r in rounds for name in r)
    return {name: _proxy(name, rounds) for name in names}


def _proxy(name: str, rounds: Rounds) -> dict[str, Any]:
    mine = [r[name] for r in rounds if name in r]
    row: dict[str, Any] = {"rounds": len(mine), "problems": sorted({p for r in mine for p in r["problems"]})}
    for part, unit in (("requests", "request"), ("streams", "chunk")):
        measured = [r for r in rounds if name in r and r[name][part]["cpu_us"] is not None]
        if part == "streams":
            single = [r for r in measured if r[name][part].get("reads_per_chunk", 0.0) >= SINGLE]
            row["joined_rounds"] = len(measured) - len(single)
            measured = single or measured
        costs = [r[name][part]["cpu_us"] for r in measured]
        ratios = [r[name][part]["cpu_us"] / r[BASE][part]["cpu_us"] for r in measured if _usable(r, part)]
        row[f"us_per_{unit}"] = median(costs) if costs else None
        row[f"us_per_{unit}_range"] = [min(costs), max(costs)] if costs else None
        row[f"{unit}_ratio"] = median(ratios) if ratios else None
        row[f"{unit}_ratio_range"] = [min(ratios), max(ratios)] if ratios else None
        for key in ("per_second", "p50_ms", "p99_ms"):
            found = [r[part][key] for r in mine if r[part].get(key) is not None]
            row[f"{unit}_{key}"] = median(found) if found else None
    reads = [r["streams"]["reads_per_chunk"] for r in mine if "reads_per_chunk" in r["streams"]]
    row["reads_per_chunk"] = median(reads) if reads else None
    row["peak_rss_mib"] = max((r["peak_rss_mib"] or 0.0 for r in mine), default=0.0)
    row["scrapes"] = sum(u["scrapes"] for r in mine for u in r["upstreams"])
    row["late_ticks"] = sum(u["late"] for r in mine for u in r["upstreams"])
    return row


def _usable(r: Mapping[str, Mapping[str, Any]], part: str) -> bool:
    """Whether nginx of this round can be divided by."""
    if BASE not in r or not r[BASE][part]["cpu_us"]:
        return False
    return part != "streams" or bool(r[BASE][part].get("reads_per_chunk", 0.0) >= SINGLE)


_HEAD = (
    "| proxy | µs/request | × nginx | requests/s | p50 / p99 ms | µs/chunk | × nginx | chunks/s "
    "| chunk age p50 / p99 ms | reads/chunk | RSS MiB | errors |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|---|"
)


def table(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Markdown. The range over the rounds stands in brackets after a median."""
    lines = [_HEAD]
    for name, r in rows.items():
        cells = [name]
        for unit, digits in (("request", 1), ("chunk", 2)):
            cells += [
                _spread(r[f"us_per_{unit}"], r[f"us_per_{unit}_range"], digits),
                _spread(r[f"{unit}_ratio"], r[f"{unit}_ratio_range"], 2),
                _number(r[f"{unit}_per_second"], 0),
                f"{_number(r[f'{unit}_p50_ms'], 2)} / {_number(r[f'{unit}_p99_ms'], 2)}",
            ]
        reads = _number(r["reads_per_chunk"], 2) + ("" if not r["joined_rounds"] else f" ({r['joined_rounds']}†)")
        cells += [
            reads,
            _number(r["peak_rss_mib"] or None, 0),
            str(len(r["problems"]) or "none"),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def _spread(value: float | None, ends: Sequence[float] | None, digits: int) -> str:
    if value is None or ends is None:
        return "–"
    if ends[0] == ends[1]:
        return _number(value, digits)
    return f"{_number(value, digits)} ({_number(ends[0], digits)}–{_number(ends[1], digits)})"
