"""One /state of several workers' states. Pure: plain data in and out.

Each worker knows its own requests exactly, and has a view of the whole. So what is each one's own is summed, and of
views the greatest number is shown. Workers may disagree about a replica's state for a moment (one has ejected it, the
others hear of it next): then the row shows what most say, and `workers` how many say what.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

State = dict[str, Any]

#: each worker's own: summed. All other numbers: the greatest. All else: the first worker's
SUMMED = {
    "gateway": {"connections", "in_flight", "held", "buffered_bytes"},
    "models": {"held", "retry_budget", "retries_denied"},
    "pools": {"in_flight"},
    "replicas": {"in_flight", "limit", "failures"},
}


def combined(states: Sequence[State]) -> State:
    """Without any, there is nothing to tell."""
    if not states:
        return {"gateway": dict.fromkeys(SUMMED["gateway"], 0), "models": [], "pools": [], "replicas": []}
    return {
        "gateway": _row([state["gateway"] for state in states], SUMMED["gateway"]),
        **{
            table: [_merged(rows, SUMMED[table]) for rows in _by(states, table, "id")]
            for table in ("models", "pools", "replicas")
        },
        "quarantine": [_row(rows, {"refused"}) for rows in _by(states, "quarantine", "fingerprint")],
    }


def _by(states: Sequence[State], table: str, key: str) -> list[list[State]]:
    rows: dict[str, list[State]] = {}
    for state in states:
        for row in state[table]:
            rows.setdefault(row[key], []).append(row)
    return [rows[id] for id in sorted(rows)]


def _merged(rows: Sequence[State], summed: set[str]) -> State:
    row = _row(rows, summed)
    if "state" in row:
        said = Counter(each["state"] for each in rows)
        # of equally many, the one that is not plain ready: that is what somebody has to look at
        row["state"] = max(said, key=lambda state: (said[state], state != "ready"))
        row["reason"] = next(each["reason"] for each in rows if each["state"] == row["state"])
        if len(said) > 1:
            row["workers"] = dict(said)
    return row


def _row(rows: Sequence[State], summed: set[str]) -> State:
    return {key: _value([row.get(key) for row in rows], sum if key in summed else max) for key in rows[0]}


def _value(values: Sequence[Any], merge: Callable[[Sequence[Any]], Any]) -> Any:
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if numbers:
        return merge(numbers)
    if isinstance(values[0], bool):
        return any(values)
    return values[0]
