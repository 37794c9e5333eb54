"""One log line per cause, not one per second."""

from __future__ import annotations

from kilocard.scrape.status import QUIET, ScrapeStatus


def test_a_failure_is_told_once_and_its_end_too() -> None:
    status = ScrapeStatus("http://h")
    assert status.bad(1.0, 0.1, "refused") is not None
    assert [status.bad(1.0 + n, 0.1, "refused") for n in range(1, 200)] == [None] * 199
    assert (status.failures, status.error, status.error_since) == (200, "refused", 1.0)
    assert status.good(300.0, 0.1, "/metrics") == "http://h/metrics: metrics are read again"
    assert status.good(301.0, 0.1, "/metrics") is None
    assert (status.failures, status.error, status.last_ok, status.page) == (0, None, 301.0, "/metrics")


def test_a_new_cause_is_told_but_not_each_second() -> None:
    status = ScrapeStatus("http://h")
    lines = [status.bad(float(n), 0.1, f"cause {n}") for n in range(int(QUIET) + 1)]
    assert [line is not None for line in lines] == [True] + [False] * (int(QUIET) - 1) + [True]


def test_flapping_is_told_once_a_minute() -> None:
    status = ScrapeStatus("http://h")
    lines = []
    for n in range(0, 50, 2):
        lines += [status.bad(float(n), 0.1, "refused"), status.good(n + 1.0, 0.1, "/metrics")]
    assert len([line for line in lines if line]) == 2
