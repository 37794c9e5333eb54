"""What `kilocard status` says of scaling: for each pool the number wanted and why, then what was done last."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.markup import escape

#: events that are shown; --json has more
EVENTS = 5
_COLOURS = {"error": "red", "pending": "yellow", "draining": "yellow", "started": "green", "ready": "green"}


def lines(scaling: dict[str, Any]) -> Iterator[str]:
    """With rich's markup."""
    controller = scaling["controller"]
    if not controller["leads"]:
        leader = controller["leader"]
        if controller["errors"].get("lease") and not leader:
            yield "controller [red]does not decide[/]: its lease can't be asked"
            yield from _events(scaling)
            return
        who = f"pid {leader['pid']} on {leader['host']}" if leader else "another one"
        yield f"controller [yellow]stands by[/]: {escape(who)} leads"
        return
    errors = ", ".join(f"{where} {count}" for where, count in controller["errors"].items())
    ago = controller["looked_ago_s"]
    late = ago is None or ago > 5.0
    when = "has not looked yet" if ago is None else f"looked {ago:.1f} s ago"
    yield f"controller leads, {'[red]' if late else ''}{when}{'[/]' if late else ''}" + (
        f", [red]errors[/]: {errors}" if errors else ""
    )
    for problem in controller["problems"]:
        yield f"  [red]{escape(problem)}[/]"
    for pool in scaling["pools"]:
        yield from _pool(pool)
    yield from _events(scaling)


def _events(scaling: dict[str, Any]) -> Iterator[str]:
    for event in scaling["events"][:EVENTS]:
        colour = _COLOURS.get(event["kind"], "dim")
        what = " ".join(part for part in (event["replica"] or event["pool"], event["kind"]) if part)
        often = f" ({event['count']} times)" if event["count"] > 1 else ""
        why = f": {escape(event['text'])}" if event["text"] else ""
        yield f"  {_long(event['ago_s'])} ago [{colour}]{escape(what)}[/]{often}{why}"


def _pool(pool: dict[str, Any]) -> Iterator[str]:
    there = ", ".join(f"{count} {phase}" for phase, count in pool["replicas"].items() if count) or "no replica"
    bounds = f"{pool['min']}–{pool['max']}"
    if pool["wanted"] is None:
        yield f"scaling [bold]{escape(pool['pool'])}[/] ({bounds}): not decided yet"
        return
    why = f"{pool['reason']}: {escape(pool['sentence'])}"
    yield f"scaling [bold]{escape(pool['pool'])}[/]: {there}, wants {pool['wanted']} of {bounds}; {why}"
    for pending in pool["pending"]:
        yield f"  [yellow]one more is wanted for {_long(pending['since_s'])}[/]: {escape(pending['reason'])}"


def _long(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
