"""What the reader has to know before the numbers, out of the numbers themselves: one line for all points alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from kilocard.bench.document import Finding, PointResult


def caveats(points: Sequence[PointResult]) -> list[Finding]:
    """Errors first, then warnings, then notes."""
    found: list[Finding] = []

    def add(severity: Literal["error", "warning", "note"], text: str) -> None:
        found.append(Finding(severity=severity, text=text))

    limited = [point for point in points if point.client.limited]
    if limited:
        add(
            "error",
            f"The load tester was the limit at {places(limited)}: {limited[0].client.limited}. Those numbers are not "
            "the server's.",
        )
    for name in dict.fromkeys(name for point in points for name in point.withheld):
        having = [point for point in points if name in point.withheld]
        add("warning", f"{name} is not given at {places(having)}: {having[0].withheld[name]}.")
    failing = [point for point in points if point.errors]
    if failing:
        kinds: Counter[str] = Counter()
        for point in failing:
            kinds.update(point.errors_by_kind)
        failed, asked = sum(point.errors for point in failing), sum(point.requests for point in failing)
        shown = ", ".join(f"{count} × {kind}" for kind, count in kinds.most_common())
        add("warning", f"{failed} of {asked} requests failed at {places(failing)}: {shown}.")
    idle = [point for point in points if point.concurrency and point.in_flight_mean < 0.9 * point.concurrency]
    if idle:
        add("warning", f"Fewer were in flight than asked at {places(idle)}: {idle[0].in_flight_mean:.1f} on average.")
    for label in ("overloaded", "backlogged"):
        late = [point for point in points if point.saturation is not None and point.saturation.label == label]
        if late and late[0].saturation is not None:
            add("note", f"{label.capitalize()} at {places(late)}: {late[0].saturation.reason}.")
    return found


def places(points: Sequence[PointResult]) -> str:
    """ "4, 8 and 16 in flight" """
    loads = dict.fromkeys(
        f"{p.concurrency}" if p.concurrency is not None else f"{p.rate_per_s:g}" if p.rate_per_s is not None else ""
        for p in sorted(points, key=in_order)
    )
    unit = "in flight" if points[0].concurrency is not None else "requests/s"
    names = [load for load in loads if load]
    if not names:
        return "the trace"
    return (f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]) + f" {unit}"


def in_order(point: PointResult) -> tuple[float, int]:
    """By load, then by repeat: how people read what was measured round by round."""
    return (point.concurrency or point.rate_per_s or 0.0, point.repeat)
