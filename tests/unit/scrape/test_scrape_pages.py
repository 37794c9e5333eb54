"""Which page is the metrics page, and what is said when none is (mt-14, mt-18)."""

from __future__ import annotations

import pytest

from kilocard.core.load import LoadSample
from kilocard.engines.base import MetricsPage
from kilocard.metrics.dialect import Dialect
from kilocard.scrape.pages import Ask, PageSearch, Unreadable

JSON = b'{"serve_mode":"direct"}'
HTML = b"<!doctype html><title>404</title>"
OLD = b'# HELP a b\n# TYPE eng:running gauge\neng:running{model_name="m"} 3\n'
NEW = b"# HELP a b\nengine_running 4\n"

FIRST = MetricsPage("/metrics", Dialect(running=("eng:running",)))
SECOND = MetricsPage("/prometheus/metrics", Dialect(running=("engine_running",)))


def search(*pages: MetricsPage) -> PageSearch:
    return PageSearch(pages or (FIRST, SECOND))


def test_the_first_page_that_matches_is_remembered() -> None:
    pages = search()
    assert pages.begin() == Ask(0)
    assert pages.answer(0, 200, JSON, 1.0) == Ask(1)
    assert pages.answer(1, 200, NEW, 2.0) == LoadSample(at=2.0, running=4.0)
    assert pages.begin() == Ask(1)


def test_all_pages_are_tried_once_and_the_reasons_given_together() -> None:
    pages = search()
    pages.begin()
    pages.answer(0, 200, JSON, 1.0)
    found = pages.answer(1, 404, HTML, 1.0)
    assert found == Unreadable(
        '/metrics is JSON, not Prometheus text: \'{"serve_mode":"direct"}\'; /prometheus/metrics answered 404'
    )


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (200, HTML, "an HTML page"),
        (200, b" \n", "is empty"),
        (200, b"\x1f\x8b\x08\x00", "binary data"),
        (200, b"# HELP a b\nprocess_cpu_seconds_total 1\n", "none of the metric names"),
        (401, b"", "answered 401"),
    ],
)
def test_objections(status: int, body: bytes, says: str) -> None:
    pages = search(FIRST)
    pages.begin()
    found = pages.answer(0, status, body, 1.0)
    assert isinstance(found, Unreadable)
    assert says in found.reason
    assert "\n" not in found.reason


def test_a_page_that_no_longer_matches_is_looked_for_again_at_once() -> None:
    pages = search()
    pages.begin()
    pages.answer(0, 200, OLD, 1.0)
    assert pages.begin() == Ask(0)
    assert pages.answer(0, 404, HTML, 2.0) == Ask(1)
    assert pages.answer(1, 200, NEW, 2.0) == LoadSample(at=2.0, running=4.0)


def test_an_overloaded_engine_is_not_another_engine() -> None:
    pages = search()
    pages.begin()
    pages.answer(0, 404, HTML, 1.0)
    pages.answer(1, 200, NEW, 1.0)
    pages.begin()
    assert pages.answer(1, 503, b"busy", 2.0) == Unreadable("/prometheus/metrics answered 503")
    assert pages.begin() == Ask(1)


def test_two_dialects_of_one_path_cost_one_request() -> None:
    pages = search(FIRST, MetricsPage("/metrics", SECOND.dialect))
    pages.begin()
    assert pages.answer(0, 200, NEW, 1.0) == LoadSample(at=1.0, running=4.0)
    assert pages.matched == 1


def test_series_of_other_models_do_not_count() -> None:
    body = OLD + b'eng:running{model_name="other"} 50\n'
    pages = PageSearch((FIRST,), models={"m"})
    pages.begin()
    assert pages.answer(0, 200, body, 1.0) == LoadSample(at=1.0, running=3.0)
