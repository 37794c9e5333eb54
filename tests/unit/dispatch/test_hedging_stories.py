"""A second attempt where the first token is late, on virtual time."""

from __future__ import annotations

from typing import Any

import pytest
from fleet_story import Story

from kilocard.dispatch import events as ev
from kilocard.dispatch.config import PoolFacts
from kilocard.dispatch.events import Fault
from kilocard.dispatch.first_tokens import EVERY, NEEDED, FirstTokens
from kilocard.dispatch.hedging import SAVED
from kilocard.dispatch.instructions import Hedge, Refuse, Send
from kilocard.dispatch.record import from_list, to_list
from kilocard.spec.model import HedgeSpec, QuarantineSpec

ROOMY = PoolFacts(max_running=10)


def late(*replicas: str, after: float | None = 1.0, budget: float = 1.0, max_load: float = 0.7, **more: Any) -> Story:
    return Story(*(replicas or ("a", "b", "c")), facts=ROOMY, hedge=HedgeSpec(after, budget, max_load), **more)


def hedges(story: Story, seconds: float) -> list[Hedge]:
    return [said for said in story.wait(seconds) if isinstance(said, Hedge)]


def counts(story: Story) -> dict[str, int]:
    return {result: count for (_, result), count in story.dispatcher.stats.hedges.items()}


def test_a_late_first_token_gets_one_second_attempt_elsewhere() -> None:
    story = late()
    first = story.send()
    assert hedges(story, 0.9) == []
    (second,) = hedges(story, 0.2)
    assert second.request == first.request and second.replica != first.replica and second.attempt == 2
    assert "first token is late" in second.decision.reason
    assert story.in_flight(first.replica) == story.in_flight(second.replica) == 1
    assert hedges(story, 5.0) == [], "one, not one a second"


def test_the_second_wins_and_the_first_lease_is_given_back() -> None:
    story = late()
    first = story.send()
    (second,) = hedges(story, 1.1)
    story.tell(ev.HedgeWon(story.now, first.request))
    assert (story.in_flight(first.replica), story.in_flight(second.replica)) == (0, 1)
    story.tell(ev.FirstContent(story.now, first.request))
    story.finish(first.request)
    assert story.in_flight(second.replica) == 0 and story.dispatcher.live == 0
    assert counts(story) == {"sent": 1, "won": 1}
    assert story.dispatcher.fleet.replicas[first.replica].health.failures == 0, "to be slow once is no failure"


@pytest.mark.parametrize("end", ["content", "finished", "abandoned", "total"])
def test_the_first_wins_or_the_request_ends(end: str) -> None:
    story = late()
    first = story.send()
    (second,) = hedges(story, 1.1)
    match end:
        case "content":
            story.tell(ev.FirstContent(story.now, first.request))
            assert story.in_flight(first.replica) == 1
        case "finished":
            story.finish(first.request)
        case "abandoned":
            story.tell(ev.Abandoned(story.now, first.request))
        case "total":
            (refusal,) = story.fail(first.request, Fault.TOTAL)
            assert isinstance(refusal, Refuse) and refusal.error.code == "total_timeout"
    assert story.in_flight(second.replica) == 0
    assert counts(story) == {"sent": 1, "lost": 1}


def test_the_first_fails_and_the_second_goes_on_alone() -> None:
    story = late()
    first = story.send()
    (second,) = hedges(story, 1.1)
    assert list(story.fail(first.request, Fault.CONNECT)) == [], "the client hears nothing of it"
    assert (story.in_flight(first.replica), story.in_flight(second.replica)) == (0, 1)
    assert story.state(first.replica) == "ejected"
    (third,) = (said for said in story.fail(first.request, Fault.RESET) if isinstance(said, Send))
    assert third.replica not in {first.replica, second.replica}, "and when it fails too, an ordinary retry"


def test_the_second_fails_and_the_first_goes_on_alone() -> None:
    story = late()
    first = story.send()
    (second,) = hedges(story, 1.1)
    story.tell(ev.HedgeFailed(story.now, first.request, Fault.CONNECT, None, ""))
    assert (story.in_flight(first.replica), story.in_flight(second.replica)) == (1, 0)
    assert story.state(second.replica) == "ejected"
    assert counts(story) == {"sent": 1, "failed": 1}
    story.tell(ev.FirstContent(story.now, first.request))
    story.finish(first.request)
    assert story.dispatcher.live == 0


def test_what_comes_late_changes_nothing() -> None:
    story = late()
    first = story.send()
    story.tell(ev.HedgeWon(story.now, first.request))
    story.tell(ev.HedgeFailed(story.now, first.request, Fault.RESET, None, ""))
    story.tell(ev.HedgeWon(story.now, 99))
    assert story.dispatcher.stats.late_events == 3 and story.in_flight(first.replica) == 1


def test_off_at_saturation() -> None:
    """Two prompts for one are dear when there is no room."""
    story = late(max_load=0.5)
    for _ in range(15):  # of 30 places
        story.send()
    assert hedges(story, 3.0) == []
    story.finish(1)
    assert len(hedges(story, 0.2)) == 1, "just below it one goes, and then there is no room again"


def test_off_while_somebody_is_held() -> None:
    story = Story("a", "b", facts=PoolFacts(10, max_in_flight=3), hedge=HedgeSpec(1.0, 1.0, 1.0))
    for _ in range(7):
        story.arrive()
    story.finish(1)
    story.finish(2)
    assert story.dispatcher.held == 0
    held = Story("a", "b", facts=PoolFacts(10, max_in_flight=3), hedge=HedgeSpec(1.0, 1.0, 1.0))
    for _ in range(7):
        held.arrive()
    assert held.dispatcher.held == 1 and hedges(held, 3.0) == []


def test_the_budget_is_a_share_of_the_requests() -> None:
    story = late(budget=0.1, max_load=1.0)
    for _ in range(200):
        story.finish(story.send().request)
    for _ in range(14):
        story.send()
    assert len(hedges(story, 5.0)) == SAVED, "saved up, at most"
    for _ in range(29):
        story.finish(story.send().request)
    assert len(hedges(story, 1.0)) == 2, "one for each ten"


def test_never_where_nobody_else_is_free() -> None:
    assert late("a").send() and hedges(late("a"), 3.0) == []
    story = late("a", "b", max_load=1.0)
    first = story.send()
    other = "b" if first.replica == "a" else "a"
    story.scrape(other, 10, 3)
    assert hedges(story, 3.0) == [], "the other one has a queue"


def test_never_for_a_suspect() -> None:
    story = late(quarantine=QuarantineSpec(3))
    first = story.send()
    (again, probe) = story.tell(ev.Failed(story.now, first.request, Fault.RESET, None, "", "4-x"))
    assert isinstance(again, Send) and probe
    assert hedges(story, 2.0) == []


def test_off_by_default() -> None:
    story = Story("a", "b", "c")
    story.send()
    assert hedges(story, 60.0) == []


# --- learned


def streams(story: Story, replica_seconds: dict[str, float], count: int, prompt: int = 0) -> None:
    """So many streams, one after the other; each replica takes its own time to the first token."""
    for _ in range(count):
        send = story.send(prompt)
        story.now += replica_seconds[send.replica]
        story.tell(ev.FirstContent(story.now, send.request))
        story.finish(send.request)


def test_the_replicas_own_95th_percentile_is_learned() -> None:
    story = late(after=None, budget=0.05)
    story.send()
    assert hedges(story, 30.0) == [], "nothing is known yet"
    streams(story, {"a": 0.2, "b": 0.2, "c": 0.2}, 5 * NEEDED)
    story.send()
    story.send(prompt=4000)
    assert len(hedges(story, 0.35)) == 2, "of the first one and the one from before"
    (long_one,) = hedges(story, 0.8)
    assert long_one.request == story.count, "a long prompt is given its time"


def test_a_replica_that_is_always_slow_is_measured_by_the_others() -> None:
    story = late(after=None, budget=0.5)
    streams(story, {"a": 0.2, "b": 0.2, "c": 3.0}, 10 * NEEDED)
    while (send := story.send(0)).replica != "c":
        story.finish(send.request)
    (second,) = hedges(story, 0.4)
    assert second.request == send.request and second.replica != "c"


def test_an_answer_in_one_piece_has_no_first_token_to_be_late() -> None:
    story = late(after=None, budget=0.5)
    streams(story, {"a": 0.2, "b": 0.2, "c": 0.2}, 5 * NEEDED)
    story.tell(ev.Arrived(story.now, 10_000, "m", 10, 10, 1e6, stream=False))
    assert hedges(story, 5.0) == []
    fixed = late(after=0.5)
    fixed.tell(ev.Arrived(fixed.now, 10_000, "m", 10, 10, 1e6, stream=False))
    assert len(hedges(fixed, 0.6)) == 1, "where the file says how late is late, it counts for all"


def test_the_estimate_is_the_95th_of_the_last_128() -> None:
    known = FirstTokens()
    for _ in range(NEEDED - 1):
        known.add(1.0)
    assert known.p95 is None
    for number in range(1000):
        known.add(float(number % 100))
    assert known.p95 is not None and 90 <= known.p95 <= 99
    for _ in range(128 + EVERY):
        known.add(2.0)
    assert known.p95 == 2.0, "it follows"


def test_hedges_are_recorded() -> None:
    for event in (ev.HedgeWon(1.0, 2), ev.HedgeFailed(1.0, 2, Fault.RESET, None, "why", "4-x")):
        assert from_list(to_list(event)) == event
