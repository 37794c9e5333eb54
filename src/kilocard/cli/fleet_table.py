"""The replicas of /state for people: a line for each where they are few, else a line for each pool and the worst ones.

Pure: rows of /state in, tables out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

#: replicas that are all shown, and how many of more
FEW = 40
WORST = 20
#: seconds; routing forgets a reading after five scrape intervals of, usually, one
OLD_S = 5.0
#: columns below which addresses are left out (--json has them)
NARROW = 100
COLOURS = {
    "ready": "green",
    "ejected": "red",
    "crash_loop": "red",
    "overheated": "yellow",
    "draining": "yellow",
    "not_ready": "yellow",
}
#: states that come and go in a healthy fleet; any other but ready means that something is broken
PASSING = frozenset({"draining", "slow_start", "starting", "loading", "stopping", "stopped", "sleeping"})
BUSY = frozenset({"overheated", "full"})
_RIGHT = frozenset({"in flight", "running", "waiting", "KV", "age", "replicas", "ready", "KV most", "oldest"})


def trouble(replica: dict[str, Any]) -> tuple[int, float, float, str]:
    """Sorts the worst first: broken, busy, not read, passing, then who has most waiting and the fullest cache."""
    state, age = replica["state"], replica["age_s"]
    if state in PASSING:
        rank = 3
    elif state in BUSY:
        rank = 1
    elif state != "ready":
        rank = 0
    elif age is None or age > OLD_S or replica.get("scrape_error"):
        rank = 2
    else:
        rank = 4
    return rank, -(replica["waiting"] or 0.0), -(replica["kv_usage"] or 0.0), replica["id"]


def choose(
    rows: Sequence[dict[str, Any]], *, everyone: bool, by: Callable[[dict[str, Any]], Any] = trouble
) -> list[dict[str, Any]]:
    """Those to be shown: all, in their order, or of many the worst; `by` sorts them first."""
    if everyone or len(rows) <= FEW:
        return list(rows)
    return sorted(rows, key=by)[:WORST]


def left_out(replicas: Sequence[dict[str, Any]], shown: int) -> str:
    """Says what the rest is."""
    rest = sorted(replicas, key=trouble)[shown:]
    states = Counter(replica["state"] for replica in rest)
    return f"{len(rest):,} more: {_count(states)}. --all shows them, --pool NAME those of one pool."


def _count(states: Counter[str]) -> str:
    return ", ".join(f"{count:,} {state}" for state, count in states.most_common())


def pools_table(replicas: Sequence[dict[str, Any]]) -> Table:
    """A line for each pool."""
    by_pool: dict[str, list[dict[str, Any]]] = {}
    for replica in replicas:
        by_pool.setdefault(replica["pool"], []).append(replica)
    table = _table("pool", "replicas", "ready", "in flight", "running", "waiting", "KV", "KV most", "oldest", "others")
    for pool, its in sorted(by_pool.items()):
        states = Counter(replica["state"] for replica in its)
        ready = states.pop("ready", 0)
        kv = [replica["kv_usage"] for replica in its if replica["kv_usage"] is not None]
        ages = [replica["age_s"] for replica in its if replica["age_s"] is not None]
        table.add_row(
            pool,
            f"{len(its):,}",
            f"{ready:,}",
            f"{sum(replica['in_flight'] for replica in its):,}",
            _sum(its, "running"),
            _sum(its, "waiting"),
            f"{sum(kv) / len(kv):.0%}" if kv else "?",
            f"{max(kv):.0%}" if kv else "?",
            f"{max(ages):.1f} s" if ages else "?",
            _count(states),
        )
    return table


def replicas_table(replicas: Sequence[dict[str, Any]], width: int) -> Table:
    """A line for each. `width`: the terminal's columns."""
    narrow = width < NARROW
    names = ("replica", "state", "in flight", "running", "waiting", "KV", "age", "address", "why")
    table = _table(*(name for name in names if not (narrow and name == "address")))
    for replica in replicas:
        colour = COLOURS.get(replica["state"], "dim")
        kv, age = replica["kv_usage"], replica["age_s"]
        cells = [
            replica["id"],
            Text(replica["state"], style=colour),
            str(replica["in_flight"]),
            _number(replica["running"]),
            _number(replica["waiting"]),
            "?" if kv is None else f"{kv:.0%}",
            "?" if age is None else f"{age:.1f} s",
            (replica["url"] or "").removeprefix("http://"),
            replica["reason"] or replica.get("scrape_error", ""),
        ]
        if narrow:
            del cells[7]
        table.add_row(*cells)
    return table


def _table(*names: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        table.add_column(name, justify="right" if name in _RIGHT else "left", overflow="fold")
    return table


def _sum(replicas: Sequence[dict[str, Any]], key: str) -> str:
    known = [replica[key] for replica in replicas if replica[key] is not None]
    return f"{sum(known):,.0f}" if known else "?"


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:g}"
