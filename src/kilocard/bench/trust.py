"""Why a whole run can't be believed: what `kilocard bench` ends with exit code 1 for. Pure."""

from __future__ import annotations

from kilocard.bench.document import Results
from kilocard.bench.run import Measured


def distrust(results: Results, measured: Measured) -> str | None:
    """The gravest reason in a sentence; None: there is none."""
    points = results.points
    if not points:
        return f"Nothing was measured: {measured.ended_early or 'no request was answered'}."
    if not any(point.completed for point in points):
        return _unanswered(results, measured)
    if all(point.errors > point.completed for point in points):
        return _mostly_failed(results)
    limited = next((point.client.limited for point in points if point.client.limited), None)
    if limited is not None:
        return f"The load tester was the limit, so the numbers are not the server's: {limited}"
    for point in points:
        if "itl_s" in point.withheld:
            return f"The numbers contradict each other: {point.withheld['itl_s']}"
    if measured.ended_early is not None and measured.stopped:
        return f"Partial: {measured.ended_early}"
    return None


def _mostly_failed(results: Results) -> str:
    """At a high load a server may refuse what it can't take. One failing most at every load is ill, or asked amiss."""
    failed = sum(point.errors for point in results.points)
    kinds = dict.fromkeys(kind for point in results.points for kind in point.errors_by_kind)
    answered = sum(point.completed for point in results.points)
    return f"Most requests failed at every load, {failed} of {failed + answered}: {', '.join(kinds)}"


def _unanswered(results: Results, measured: Measured) -> str:
    if measured.ended_early is not None:
        return f"No request was answered: {measured.ended_early}"
    if any(point.errors for point in results.points):
        kinds = dict.fromkeys(kind for point in results.points for kind in point.errors_by_kind)
        return f"No request was answered: {', '.join(kinds)}"
    longest = max(point.window_s for point in results.points)
    return f"No answer ended within {longest:.3g} s: give a longer --duration, or a smaller --output"
