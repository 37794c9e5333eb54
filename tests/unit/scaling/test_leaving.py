"""Who goes: nobody is served by it, or it has the least to finish and the least to forget."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kilocard.core.signals import Phase, ReplicaSignals
from kilocard.scaling.leaving import leaving


def one(id: str, phase: Phase = Phase.READY, **signals: Any) -> ReplicaSignals:
    return replace(ReplicaSignals(id, "p", phase), **signals)


def order(*replicas: ReplicaSignals, version: str = "") -> list[str]:
    return [each.replica for each in leaving(replicas, len(replicas), version)]


def test_as_04_the_one_with_the_least_in_flight_and_those_that_leave_already_are_passed_over() -> None:
    replicas = [
        one("a", in_flight=4, in_flight_tokens=900.0),
        one("b", in_flight=1, in_flight_tokens=180.0),
        one("c", Phase.DRAINING, in_flight=0),
        one("d", in_flight=2, in_flight_tokens=400.0),
    ]
    assert order(*replicas) == ["b", "d", "a"]
    assert leaving(replicas, 1)[0].reason == "it has the least work: 1 requests"


def test_who_serves_nobody_goes_first() -> None:
    found = order(
        one("ready"),
        one("loading", Phase.LOADING),
        one("starting", Phase.STARTING),
        one("failing", Phase.FAILING, in_flight=3),
        one("pending", Phase.PENDING),
    )
    assert found == ["pending", "failing", "starting", "loading", "ready"]


def test_work_of_others_counts() -> None:
    assert order(one("a", running=6.0, waiting=2.0), one("b", in_flight=1, in_flight_tokens=5.0, running=1.0)) == [
        "b",
        "a",
    ]


def test_then_the_oldest_version_then_the_coldest_cache_then_the_youngest() -> None:
    assert order(one("new", version="2"), one("old", version="1"), version="2") == ["old", "new"]
    assert order(one("warm", cached_share=0.6), one("cold", cached_share=0.1)) == ["cold", "warm"]
    assert order(one("a", since_s=900.0), one("b", since_s=20.0)) == ["b", "a"]


def test_no_more_than_there_are_and_none_for_none() -> None:
    assert leaving([one("a")], 3)[0].replica == "a"
    assert leaving([one("a")], 0) == []
    assert leaving([one("a")], -2) == []
