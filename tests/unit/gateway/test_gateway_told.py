"""A controller elsewhere tells all its replicas each second; what a gateway makes of it are changes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kilocard.core.replica import Change, Endpoint, Found, Leaving, Lost
from kilocard.core.roll import Roll, RollEntry
from kilocard.gateway.told import Told


def entry(id: str, how: str, url: str | None = "http://10.0.0.1:8000") -> RollEntry:
    return RollEntry(id, "p", how, url, serves=how == "ready", leaves=how == "draining", reason="less to do")


def heard(*rolls: list[RollEntry]) -> list[Change]:
    news: list[Change] = []
    told = Told(news.append)
    for roll in rolls:
        told.take(Roll(tuple(roll)))
    return news


FOUND = Found(Endpoint("p-0", "p", "http://10.0.0.1:8000"))


def test_a_replicas_life_as_it_is_told() -> None:
    starting = entry("p-0", "starting", None)
    assert heard([starting]) == []
    assert heard([starting], [entry("p-0", "ready")]) == [FOUND]
    assert heard([entry("p-0", "ready")], [entry("p-0", "draining")], []) == [
        FOUND, Leaving("p-0", "less to do"), Lost("p-0", "the controller has it no more"),
    ]  # fmt: skip


def test_the_same_again_is_no_news() -> None:
    assert heard(*[[entry("p-0", "ready")]] * 3) == [FOUND]
    assert len(heard(*[[entry("p-0", "ready")]] * 2, *[[entry("p-0", "draining")]] * 3)) == 2


def test_one_that_restarts_is_lost_until_it_serves_again_and_may_have_moved() -> None:
    moved = entry("p-0", "ready", "http://10.0.0.2:9000")
    assert heard([entry("p-0", "ready")], [entry("p-0", "restarting")], [moved]) == [
        FOUND, Lost("p-0", "the controller has it no more"), Found(Endpoint("p-0", "p", "http://10.0.0.2:9000")),
    ]  # fmt: skip
    assert heard([entry("p-0", "ready")], [moved])[-1] == Found(Endpoint("p-0", "p", "http://10.0.0.2:9000"))


def test_one_that_was_to_leave_and_stays_is_found_again() -> None:
    assert heard([entry("p-0", "ready")], [entry("p-0", "draining")], [entry("p-0", "ready")])[-1] == FOUND


def test_a_gateway_that_comes_up_while_one_leaves_never_sends_there() -> None:
    assert heard([entry("p-0", "draining")]) == []


def test_what_people_see_of_replicas_that_serve_or_not() -> None:
    told = Told(lambda change: None)
    assert told.scaling() is None and told.describe() == {}
    told.take(Roll((entry("p-0", "starting", None),), {"pools": []}))
    assert told.scaling() == {"pools": []}
    assert told.describe()["p-0"]["state"] == "starting"


STATES = st.sampled_from(["starting", "ready", "draining", "restarting"])


@given(st.lists(st.dictionaries(st.sampled_from(["p-0", "p-1", "p-2"]), STATES), max_size=8))
def test_after_any_story_who_may_get_requests_is_who_the_last_roll_says(rolls: list[dict[str, str]]) -> None:
    routed: set[str] = set()
    for change in heard(*[[entry(id, how) for id, how in roll.items()] for roll in rolls]):
        if isinstance(change, Found):
            routed.add(change.endpoint.replica)
        else:
            routed.discard(change.replica)
    assert routed == ({id for id, how in rolls[-1].items() if how == "ready"} if rolls else set())
