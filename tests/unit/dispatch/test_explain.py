"""An explanation says what the decision was made of, and changes nothing."""

from __future__ import annotations

from random import Random

import pytest
from fleet_story import Story
from hypothesis import given, settings
from hypothesis import strategies as st

from kilocard.dispatch import checkpoint
from kilocard.dispatch.explain import explain
from kilocard.dispatch.instructions import Send
from kilocard.routing.index import LoadIndex

POLICIES = ["queue_depth", "round_robin", "least_connections", "adaptive", "prefix_affinity"]


def test_the_chosen_is_shown_as_it_was_before_and_the_others_by_score() -> None:
    story = Story("a", "b", "c")
    story.scrape("a", 5, 2, 0.5)
    story.scrape("b", 1, 0, 0.1)
    story.now = 0.4
    send = story.send()
    why = explain(story.dispatcher.fleet, story.now, "m", "", send)
    assert why is not None and why.chosen is not None
    assert why.policy == "queue_depth" and send.replica == "c"
    assert (why.chosen.in_flight, why.chosen.running, why.chosen.age_s) == (0, None, None), "never read: unknown"
    assert [other.replica for other in why.others] == ["b", "a"]
    b, a = why.others
    assert send.decision.score < b.score < a.score
    assert (a.running, a.waiting, a.in_flight, a.kv_usage, a.age_s) == (5.0, 2.0, 0, 0.5, 0.4)


def test_replicas_that_it_has_failed_on_were_no_candidates() -> None:
    story = Story("a", "b", "c")
    send = story.send()
    why = explain(story.dispatcher.fleet, 0.0, "m", "", send, [next(r for r in "abc" if r != send.replica)])
    assert why is not None and len(why.others) == 1


def test_a_model_that_is_gone_has_no_explanation() -> None:
    story = Story("a")
    assert explain(story.dispatcher.fleet, 0.0, "other", "", story.send()) is None


@pytest.mark.parametrize("policy", POLICIES)
def test_the_best_of_the_others_is_who_would_be_chosen_next(policy: str) -> None:
    story = Story(*"abcdef", policy=policy)
    for replica, load in zip("abcdef", (3, 1, 4, 1, 5, 9), strict=True):
        story.scrape(replica, load, 0, 0.1)
    for _ in range(20):
        sent = story.send()
        lowest = story.dispatcher.fleet.models["m"].routes[0].policy.lowest(1)
        nxt = story.send()
        # what has changed is drawn when the choice is made: until then it may be ahead or behind by that much
        drawn = getattr(story.dispatcher.fleet.models["m"].routes[0].policy, "blur", 0.0) + 1e-6
        assert lowest[0][1] == nxt.replica or lowest[0][0] == pytest.approx(nxt.decision.score, abs=drawn), sent


@settings(max_examples=10)
@given(seed=st.integers(0, 2**32), policy=st.sampled_from(POLICIES))
def test_explaining_changes_nothing(seed: int, policy: str) -> None:
    rng = Random(seed)
    story = Story("a", "b", "c", policy=policy)
    running: list[int] = []
    for _ in range(10):
        answer = story.arrive(rng.randrange(2000))
        if isinstance(answer, Send):
            running.append(answer.request)
            before = checkpoint.pack(story.dispatcher)
            explain(story.dispatcher.fleet, story.now, "m", "", answer, rng.choice([(), ("a",)]), rng.randrange(5))
            assert checkpoint.pack(story.dispatcher) == before
        if running and rng.random() < 0.5:
            story.finish(running.pop(rng.randrange(len(running))))


@given(
    st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 5), st.booleans()), max_size=60), st.integers(0, 9)
)
def test_the_lowest_of_an_index_are_the_lowest(puts: list[tuple[str, int, bool]], count: int) -> None:
    index = LoadIndex(Random(1))
    live: dict[str, int] = {}
    for replica, score, stays in puts:
        index.put(replica, score)
        live[replica] = score
        if not stays:
            index.discard(replica)
            del live[replica]
    found = index.lowest(count)
    assert [entry[0] for entry in found] == sorted(live.values())[:count]
    assert all(live[entry[2]] == entry[0] for entry in found)
