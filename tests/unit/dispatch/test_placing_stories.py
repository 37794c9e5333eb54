"""Where requests go when nothing is broken."""

from __future__ import annotations

import json
from collections import Counter
from random import Random

import pytest
from fleet_story import Story, spread

from kilocard.dispatch import events as ev
from kilocard.dispatch.config import PoolFacts
from kilocard.dispatch.dispatcher import Dispatcher
from kilocard.dispatch.instructions import Refuse, Send
from kilocard.spec.model import ModelSpec


@pytest.mark.parametrize("policy", ["queue_depth", "least_connections", "round_robin", "adaptive"])
def test_32_at_once_over_4_replicas_are_8_each(policy: str) -> None:
    """Counted when sent, not when the answer begins (lb-06); by replica, not by model (lb-10)."""
    story = Story("a", "b", "c", "d", policy=policy)
    assert spread([story.send() for _ in range(32)]) == {"a": 8, "b": 8, "c": 8, "d": 8}


@pytest.mark.parametrize("policy", ["queue_depth", "least_connections", "adaptive"])
def test_stale_gauges_do_not_herd(policy: str) -> None:
    """lb-03: gauges 5 s old or 0 at cold start; own in-flight keeps the spread even."""
    names = [f"r{i}" for i in range(8)]
    story = Story(*names, policy=policy)
    for name in names:
        story.scrape(name, 0, 0, 0.0)
    live: list[int] = []
    worst = 0
    for step in range(1000):
        story.now = step * 0.02
        live.append(story.send().request)
        if len(live) > 80:
            story.finish(live.pop(0))
        if step % 250 == 249:
            for name in names:
                story.scrape(name, 0, 0, 0.0)
        counts = [story.in_flight(name) for name in names]
        worst = max(worst, max(counts) - min(counts))
    assert worst <= 4


def test_other_gateways_load_is_seen_and_fades() -> None:
    story = Story("mine", "busy")
    story.scrape("mine", 0, 0)
    story.scrape("busy", 12, 0)
    assert spread([story.send() for _ in range(6)]) == {"mine": 6}
    for request in range(1, 7):
        story.finish(request)
    story.wait(6)
    assert spread([story.send() for _ in range(6)]) == {"mine": 3, "busy": 3}


def test_two_long_prompts_weigh_more_than_four_short_ones() -> None:
    """lb-11, R23."""
    story = Story("a", "b")
    long = story.send(prompt=8000, output=800).replica
    other = "b" if long == "a" else "a"
    assert [story.send(prompt=200, output=50).replica for _ in range(5)] == [other] * 5


def test_prefilled_prompts_no_longer_count() -> None:
    story = Story("a", "b")
    first = story.send(prompt=8000, output=10)
    story.tell(ev.FirstContent(0.1, first.request))
    assert spread([story.send(prompt=10, output=10) for _ in range(7)])[first.replica] == 3


def test_weights_choose_the_pool_and_zero_gets_nothing() -> None:
    story = Story(pools={"p": 3, "q": 1, "never": 0}, policy="round_robin")
    story.up("p0")
    story.up("q0", pool="q")
    story.up("n0", pool="never")
    counts = Counter(story.send().pool for _ in range(2000))
    assert counts["never"] == 0
    assert 430 < counts["q"] < 570


def test_a_full_pool_spills_over_and_says_so() -> None:
    story = Story("a", pools={"p": 1_000_000, "q": 1, "never": 0}, facts=PoolFacts(max_in_flight=1))
    story.up("spare", pool="q")
    story.up("n0", pool="never")
    assert story.send().replica == "a"
    spilled = story.send()
    assert spilled.replica == "spare"
    assert "over to q" in spilled.decision.reason
    assert not isinstance(story.arrive(), Send)


def test_one_cursor_per_model() -> None:
    """production-stack#916: requests for one model must not move the other's turn."""
    models = {name: ModelSpec(name, {"p": 1}, "round_robin") for name in ("m", "n")}
    dispatcher = Dispatcher(models, {}, Random(0))
    for replica in "ab":
        dispatcher.handle(ev.ReplicaUp(0.0, replica, "p"))
    seen: dict[str, list[str]] = {"m": [], "n": []}
    for id in range(8):
        model = "mn"[id % 2]
        (send,) = dispatcher.handle(ev.Arrived(0.0, id, model, 1, 1, 99.0))
        assert isinstance(send, Send)
        seen[model].append(send.replica)
    assert seen == {"m": ["a", "b"] * 2, "n": ["a", "b"] * 2}


def test_unknown_model() -> None:
    answer = Story("a").arrive(model="x" * 5000)
    assert isinstance(answer, Refuse)
    assert (answer.error.http_status, answer.error.code) == (404, "model_not_found")
    assert "there is: m" in str(answer.error)
    assert len(str(answer.error)) < 300


def test_declared_output_is_corrected_by_what_comes() -> None:
    """Clients ask for 4,096 tokens and get 10: after a while the estimate knows."""
    story = Story("a")
    for _ in range(300):
        story.finish(story.send(output=4096).request)
    story.send(output=4096)
    assert story.dispatcher.fleet.replicas["a"].decode < 100


def test_snapshot_is_plain_data() -> None:
    story = Story("a", "b", facts=PoolFacts(32))
    story.send()
    story.scrape("a", 3, 1, 0.5)
    story.tell(ev.ReplicaDraining(0.0, "b"))
    state = json.loads(json.dumps(story.dispatcher.snapshot(1.5)))
    first, second = state["replicas"]
    assert (first["id"], first["state"], first["age_s"], first["kv_usage"]) == ("a", "ready", 1.5, 0.5)
    assert (second["id"], second["state"]) == ("b", "draining")
    assert second["reason"]
    assert state["pools"][0]["available"] == 1


def test_requests_without_a_declared_output_teach_nothing() -> None:
    story = Story("a")
    for _ in range(40_000):
        story.finish(story.send(output=0).request)
    assert story.send(output=50).replica == "a"
    assert story.dispatcher.fleet.replicas["a"].decode == 50
