"""News of one source, each told once."""

from __future__ import annotations

from kilocard.core.replica import Endpoint, Found, Leaving, Lost
from kilocard.scrape.roster import Roster

A = Endpoint("p/a", "p", "http://a:1")
B = Endpoint("p/b", "p", "http://b:1")


def test_a_replica_is_found_once() -> None:
    roster = Roster()
    assert roster.update(0.0, {"p/a": A}, {}, "gone") == [Found(A)]
    assert roster.update(1.0, {"p/a": A}, {}, "gone") == []


def test_another_url_means_it_moved() -> None:
    roster = Roster()
    roster.update(0.0, {"p/a": A}, {}, "gone")
    moved = A._replace(url="http://c:1")
    assert roster.update(1.0, {"p/a": moved}, {}, "gone") == [Found(moved)]


def test_without_grace_it_is_lost_at_once() -> None:
    roster = Roster()
    roster.update(0.0, {"p/a": A, "p/b": B}, {}, "gone")
    assert roster.update(1.0, {"p/b": B}, {}, "gone") == [Lost("p/a", "gone")]


def test_with_grace_it_leaves_first() -> None:
    roster = Roster(grace=10.0)
    roster.update(0.0, {"p/a": A}, {}, "gone")
    assert roster.update(1.0, {}, {}, "gone") == [Leaving("p/a", "gone")]
    assert roster.update(10.0, {}, {}, "gone") == []
    assert roster.update(11.0, {}, {}, "gone") == [Lost("p/a", "gone")]
    assert roster.update(12.0, {}, {}, "gone") == []


def test_back_within_its_grace_it_is_found_again() -> None:
    roster = Roster(grace=10.0)
    roster.update(0.0, {"p/a": A}, {}, "gone")
    roster.update(1.0, {}, {}, "gone")
    assert roster.update(5.0, {"p/a": A}, {}, "gone") == [Found(A)]
    assert roster.expire(100.0, "gone") == []


def test_what_the_source_calls_leaving_is_lost_when_it_stops_naming_it() -> None:
    roster = Roster()
    roster.update(0.0, {"p/a": A}, {}, "gone")
    assert roster.update(1.0, {}, {"p/a": "terminating"}, "gone") == [Leaving("p/a", "terminating")]
    assert roster.update(500.0, {}, {"p/a": "terminating"}, "gone") == []
    assert roster.update(501.0, {}, {}, "gone") == [Lost("p/a", "gone")]


def test_a_stranger_that_leaves_is_no_news() -> None:
    roster = Roster()
    assert roster.update(0.0, {}, {"p/a": "not ready"}, "gone") == []
    assert roster.update(1.0, {}, {}, "gone") == []
