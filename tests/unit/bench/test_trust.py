"""What a run ends with when it can't be believed: the cause, and not what follows from it."""

from __future__ import annotations

from tests.run_results import results
from tests.simulated_points import record

from kilocard.bench.document import About, Results, TargetSeen
from kilocard.bench.point import ClientHealth, Point
from kilocard.bench.record import CUT_OFF, RequestRecord
from kilocard.bench.run import Measured
from kilocard.bench.trust import distrust

LATE = "the client acted 9.0 ms late on average"


def run(*records: RequestRecord, limited: str | None = None) -> Results:
    client = ClientHealth()
    client.limited = limited
    point = Point(0.0, 4.0, concurrency=1, records=list(records), client=client)
    return results([point], target=TargetSeen(url="http://a", model="m"), about=About(started_at="", kilocard="0"))


def test_a_fine_run_is_believed() -> None:
    assert distrust(run(record()), Measured()) is None


def test_a_client_that_was_the_limit_is_not() -> None:
    assert "The load tester was the limit" in (distrust(run(record(), limited=LATE), Measured()) or "")


def test_where_all_failed_the_failure_is_told_and_not_the_client() -> None:
    told = distrust(run(record(error="no tokens"), limited=LATE), Measured())
    assert told == "No request was answered: no tokens"


def test_a_run_in_which_most_requests_failed_is_no_measurement() -> None:
    told = distrust(run(record(), record(error="refused: 503"), record(error="refused: 503")), Measured())
    assert told == "Most requests failed at every load, 2 of 3: refused: 503"


def test_as_many_answers_as_failures_are() -> None:
    assert distrust(run(record(), record(error="refused: 503")), Measured()) is None


def test_answers_longer_than_the_window_are_told_as_that() -> None:
    told = distrust(run(record(error=CUT_OFF)), Measured())
    assert told == "No answer ended within 4 s: give a longer --duration, or a smaller --output"


def test_ctrl_c_leaves_a_part() -> None:
    assert distrust(run(record()), Measured(ended_early="it was stopped", stopped=True)) == "Partial: it was stopped"
