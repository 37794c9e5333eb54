"""What whoever scales is told of pools and replicas: counts that only grow, gauges of the moment."""

from __future__ import annotations

from random import Random

import pytest
from fleet_story import Story

from kilocard.core.signals import BUCKETS, Phase, PoolSignals, ReplicaSignals, bucket
from kilocard.dispatch import events as ev
from kilocard.dispatch.config import PoolFacts
from kilocard.dispatch.instructions import Refuse
from kilocard.dispatch.signals import pool_signals, replica_signals
from kilocard.spec.model import HoldSpec


def pool(story: Story, name: str = "p") -> PoolSignals:
    return pool_signals(story.dispatcher.fleet, story.now, "here")[name]


def replica(story: Story, id: str) -> ReplicaSignals:
    return {each.id: each for each in replica_signals(story.dispatcher.fleet, story.now)}[id]


def test_a_request_is_counted_when_it_comes_and_when_it_ends() -> None:
    story = Story("a")
    sent = story.send(prompt=700, output=50)
    there = pool(story)
    assert (there.arrived, there.prompt_tokens, there.finished, there.output_tokens) == (1, 700, 0, 0)
    assert (there.in_flight, there.in_flight_tokens, there.held) == (1, 750, 0)
    story.finish(sent.request, output=30)
    after = pool(story)
    assert (after.arrived, after.finished, after.output_tokens, after.in_flight) == (1, 1, 30, 0)
    assert after.sources == ("here",)


def test_the_first_token_of_a_stream_counts_from_its_arrival_wait_included() -> None:
    story = Story(hold=HoldSpec(10, 60.0))
    story.arrive()
    story.wait(3.0)
    story.up("a")
    story.wait(0.4)
    story.tell(ev.FirstContent(story.now, 1))
    there = pool(story)
    assert there.first_token[bucket(3.4)] == 1 and sum(there.first_token) == 1
    assert there.hold[bucket(3.0)] == 1 and sum(there.hold) == 1
    assert len(there.hold) == BUCKETS


def test_what_waits_in_the_gateway_while_there_is_no_replica() -> None:
    story = Story(hold=HoldSpec(10, 60.0))
    story.arrive(prompt=100, output=20)
    story.wait(2.0)
    story.arrive(prompt=300, output=20)
    there = pool(story)
    assert (there.arrived, there.held, there.held_tokens, there.in_flight) == (2, 2, 440, 0)
    assert there.held_oldest_s == pytest.approx(2.0)
    story.up("a")
    assert pool(story).held == 0 and pool(story).held_oldest_s == 0.0


@pytest.mark.parametrize(("most", "wait", "refused"), [(1, 0.0, 1), (10, 1.2, 2)])
def test_requests_that_are_turned_away_for_want_of_a_place(most: int, wait: float, refused: int) -> None:
    story = Story(hold=HoldSpec(most, 1.0))
    story.arrive_all()
    story.arrive_all()
    story.wait(wait)
    assert sum(isinstance(answer, Refuse) for answer in story.heard) == refused
    assert pool(story).refused == refused
    assert pool(story).arrived == 2


def test_as_11_a_short_request_between_two_readings_leaves_its_trace() -> None:
    """kthena#1019: 300 ms of work, seen by nobody who only samples what runs at the moment."""
    story = Story("a")
    before = pool(story)
    sent = story.send()
    story.wait(0.3)
    story.finish(sent.request)
    story.wait(14.7)
    after = pool(story)
    assert (before.in_flight, after.in_flight) == (0, 0)
    assert after.arrived - before.arrived == 1


def test_a_models_requests_count_by_the_weights_of_its_pools() -> None:
    story = Story(pools={"p": 3, "q": 1}, hold=HoldSpec(1000, 60.0), seed=4)
    for _ in range(400):
        story.arrive()
    assert pool(story, "p").arrived + pool(story, "q").arrived == 400
    assert pool(story, "p").held + pool(story, "q").held == 400
    assert 0.2 < pool(story, "q").held / 400 < 0.3


def test_a_replica_as_its_gauges_and_the_gateway_see_it() -> None:
    story = Story("a", "b")
    assert replica(story, "a").age_s is None and replica(story, "a").waiting is None  # unknown, never 0
    story.scrape("a", running=7, waiting=3, kv=0.5)
    story.wait(2.0)
    seen = replica(story, "a")
    assert (seen.running, seen.waiting, seen.kv_usage, seen.phase) == (7, 3, 0.5, Phase.READY)
    assert seen.age_s == pytest.approx(2.0)
    sent = story.send()
    story.tell(ev.ReplicaDraining(story.now, sent.replica))
    leaving = replica(story, sent.replica)
    assert (leaving.phase, leaving.in_flight) == (Phase.DRAINING, 1)


def test_an_ejected_replica_is_failing() -> None:
    story = Story("a", "b", "c")
    for _ in range(9):
        sent = story.send()
        if sent.replica == "a":
            story.fail(sent.request, ev.Fault.STATUS, 500)
    assert replica(story, "a").phase is Phase.FAILING
    assert replica(story, "b").phase is Phase.READY


def test_counters_never_fall_and_requests_are_somewhere() -> None:
    """arrived = finished + refused + abandoned + held + in flight, whatever happens; no counter ever falls."""
    rng = Random(7)
    story = Story("a", "b", facts=PoolFacts(max_in_flight=2), hold=HoldSpec(5, 2.0))
    abandoned = 0
    before = pool(story)
    for _ in range(600):
        match rng.randrange(5):
            case 0 | 1:
                story.arrive_all()
            case 2 | 3 if running := [r for r in story.dispatcher._requests.values() if r.replica is not None]:
                story.finish(rng.choice(running).id)
            case 4 if rng.random() < 0.3 and story.dispatcher._requests:
                story.tell(ev.Abandoned(story.now, rng.choice(list(story.dispatcher._requests))))
                abandoned += 1
            case _:
                story.wait(0.3)
        now = pool(story)
        assert now.arrived == now.finished + now.refused + abandoned + now.held + now.in_flight
        for name in ("arrived", "finished", "refused", "prompt_tokens", "output_tokens"):
            assert getattr(now, name) >= getattr(before, name)
        assert all(new >= old for new, old in zip(now.hold, before.hold, strict=True))
        before = now
    assert before.refused and before.finished and sum(before.hold)
