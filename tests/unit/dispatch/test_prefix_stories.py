"""prefix_affinity in the dispatcher: fleets, several gateways, restarts. Names begin with the id in docs/cases.md."""

from __future__ import annotations

import json
from collections import Counter, deque
from random import Random

import pytest
from fleet_story import Story, spread

from kilocard.core.load import LoadSample
from kilocard.core.prefix import Prefix, block_keys, key_of, of_blocks
from kilocard.dispatch import events as ev
from kilocard.dispatch.config import PoolFacts
from kilocard.dispatch.explain import explain
from kilocard.dispatch.instructions import Send
from kilocard.dispatch.record import from_list, to_list
from kilocard.routing.prefix_affinity import CACHED_HERE, PrefixAffinity

EIGHT = [f"r{number}" for number in range(8)]


def fleet(*replicas: str, **more: object) -> Story:
    return Story(*replicas, policy="prefix_affinity", **more)  # type: ignore[arg-type]  # a test's own keywords


def turn(conversation: int, number: int = 1, system: int = 4) -> Prefix:
    """Turn `number` of a conversation: 1,024 tokens of system prompt that all share, then 1,024 a turn."""
    blocks = [*range(system), *range(1000 * conversation, 1000 * conversation + 4 * number)]
    found = of_blocks(len(blocks) * 256 + 30, blocks, 256, str(conversation))
    assert found is not None
    return found


def ask(story: Story, prefix: Prefix, output: int = 100) -> Send:
    return story.send(prefix.tokens, output, prefix)


def first_token(story: Story, send: Send) -> None:
    """In the time that it takes to compute what is not cached."""
    request = story.dispatcher._requests[send.request]
    story.tell(ev.FirstContent(story.now + 0.02 + request.work / 16_000, send.request))


def answer(story: Story, request: int) -> None:
    story.tell(ev.FirstContent(story.now, request))
    story.finish(request, 100)


def policy(story: Story) -> PrefixAffinity:
    found = story.dispatcher.fleet.models["m"].routes[0].policy
    assert isinstance(found, PrefixAffinity)
    return found


def test_lb_04_a_full_queue_gets_nothing_although_it_has_the_whole_prompt() -> None:
    story = fleet("full", "empty")
    for number in range(1, 9):
        story.now += 10
        send = ask(story, turn(number, 4))
        answer(story, send.request)
    story.tell(ev.ReplicaDraining(story.now, "empty"))
    for number in range(1, 9):
        answer(story, ask(story, turn(number, 4)).request)
    story.up("empty")
    story.scrape("full", 32, 20, 0.3)
    story.scrape("empty", 0, 0, 0.9)
    assert spread([ask(story, turn(number, 4)) for number in range(1, 9)]) == {"empty": 8}


def test_lb_04_a_miss_goes_to_the_least_loaded_however_small_the_others_trees_are() -> None:
    story = fleet("busy", "idle")
    for number in range(1, 40):  # all that is known is known of idle
        story.tell(ev.ReplicaDraining(story.now, "busy"))
        answer(story, ask(story, turn(number)).request)
    story.up("busy")
    story.scrape("busy", 60, 0, 0.2)
    story.scrape("idle", 0, 0, 0.2)
    assert spread([ask(story, turn(number, system=0)) for number in range(100, 108)]) == {"idle": 8}


def test_lb_07_4096_requests_with_one_prefix_use_all_eight_by_affinity_too() -> None:
    story = fleet(*EIGHT, facts=PoolFacts(max_running=1024))
    live: deque[int] = deque()
    used: Counter[str] = Counter()
    for number in range(4096):
        story.now = number * 0.01
        send = ask(story, turn(1, 15), output=100)
        used[send.replica] += 1
        live.append(send.request)
        first_token(story, send)
        if len(live) > 512:
            story.finish(live.popleft(), 100)
        if number % 100 == 0:
            story.tell(ev.Tick(story.now))
            for name in EIGHT:
                story.scrape(name, story.in_flight(name), 0, 0.08)
            if number >= 200:
                counts = [story.in_flight(name) for name in EIGHT]
                assert max(counts) <= 1.25 * sum(counts) / 8 + 3
    assert set(used) == set(EIGHT) and max(used.values()) <= 1.25 * 512


def test_a_conversation_stays_and_what_is_cached_is_no_load() -> None:
    story = fleet(*EIGHT)
    send = ask(story, turn(1))
    answer(story, send.request)
    for number in range(2, 8):
        later = ask(story, turn(1, number))
        assert later.replica == send.replica
        assert 0.8 * turn(1, number - 1).tokens < later.decision.cached < turn(1, number - 1).tokens
        assert story.dispatcher.fleet.replicas[send.replica].prefill == turn(1, number).tokens - later.decision.cached
        answer(story, later.request)
    replica = story.dispatcher.fleet.replicas[send.replica]
    assert (replica.prefill, replica.context, replica.in_flight) == (0, 0, 0), "given back as it was taken"
    asked, expected = story.dispatcher.stats.prefixes["m"]
    assert asked == sum(turn(1, number).tokens for number in range(1, 8)) and 0.4 < expected / asked < 0.9


def chat_through(gateways: list[Story], conversations: int = 60, turns: int = 12) -> float:
    """Each turn comes to a gateway by chance; gauges are read once in 20 requests. Share of what was said before that
    was on the replica that got the turn."""
    rng = Random(1)
    known: dict[tuple[int, str], int] = {}
    live: deque[tuple[Story, Send]] = deque()
    had = said = count = 0
    now = 0.0
    for number in range(1, turns + 1):
        for conversation in rng.sample(range(1, conversations + 1), conversations):
            count += 1
            now += 0.02
            story = rng.choice(gateways)
            story.now = now
            send = ask(story, turn(conversation, number))
            had += known.get((conversation, send.replica), 0)
            said += number - 1
            known[conversation, send.replica] = number
            live.append((story, send))
            first_token(story, send)
            if len(live) > 16:
                owner, done = live.popleft()
                owner.now = now
                owner.finish(done.request, 100)
            if count % 20 == 0:
                for replica in EIGHT:
                    running = sum(owner.in_flight(replica) for owner in gateways)
                    for owner in gateways:
                        owner.now = now
                        owner.scrape(replica, running, 0, 0.2)
    return had / said


def test_lb_13_gateways_without_shared_state_agree_mostly_where_a_conversation_lives() -> None:
    alone = chat_through([fleet(*EIGHT)])
    three = chat_through([fleet(*EIGHT, seed=seed) for seed in range(3)])
    blind = chat_through([Story(*EIGHT, seed=seed) for seed in range(3)])
    short = chat_through([fleet(*EIGHT, seed=seed) for seed in range(3)], conversations=200, turns=3)
    assert alone > 0.9 and blind < 0.5, (alone, blind)
    # a short prompt's home is worth no more than the prompt, so short conversations gain little
    assert three > 0.75 and short > 0.51, "without homes 0.68 and 0.49: each gateway has to learn alone"


def test_lb_13_a_replica_that_goes_moves_its_own_conversations_only() -> None:
    story = fleet(*EIGHT)
    homes = {}
    for number in range(1, 65):
        send = ask(story, turn(number, system=0))
        answer(story, send.request)
        homes[number] = send.replica
    gone = homes[1]
    story.tell(ev.ReplicaGone(story.now, gone))
    moved = 0
    for number, home in homes.items():
        send = ask(story, turn(number, 2, system=0))
        answer(story, send.request)
        moved += send.replica != home
        assert home == gone or send.replica == home
    assert moved == list(homes.values()).count(gone)


def test_lb_14_one_tenant_with_most_of_the_traffic_is_on_all_replicas_and_the_map_is_bounded() -> None:
    story = fleet(*EIGHT)
    rng = Random(2)
    used: Counter[str] = Counter()
    for _ in range(2000):
        session = key_of(b"session %d" % rng.randrange(300))
        story.now += 0.01
        prefix = Prefix(2000, (), session=session)
        (send,) = story.arrive_all(2000, 100, tenant="big" if rng.random() < 0.8 else "small", prefix=prefix)
        assert isinstance(send, Send)
        used[send.replica] += 1
        answer(story, send.request)
    assert set(used) == set(EIGHT) and max(used.values()) < 2 * 2000 / 8
    assert policy(story).index.sessions == 300


@pytest.mark.parametrize("how", ["ejected", "gone", "counters"])
def test_24_a_replica_that_was_started_anew_is_not_believed_to_have_anything(how: str) -> None:
    story = fleet("a", "b", slow_start=0.0)
    send = ask(story, turn(1, 8))
    home = send.replica
    story.tell(ev.Scraped(0.0, home, LoadSample(0.0, 1, 0, 0.1, prompt_tokens_total=90_000)))
    answer(story, send.request)
    if how == "ejected":
        lost = ask(story, turn(1, 8))
        assert lost.replica == home
        story.fail(lost.request, ev.Fault.CONNECT)
        story.wait(3.0)
        story.tell(ev.Probed(story.now, home, True))
        story.tell(ev.Abandoned(story.now, lost.request))
    elif how == "gone":
        story.tell(ev.ReplicaGone(story.now, home))
        story.up(home)
    else:
        story.tell(ev.Scraped(1.0, home, LoadSample(1.0, 0, 0, 0.0, prompt_tokens_total=100)))
        story.send(10, 10)
    found = policy(story)
    record = found._records.get(home)
    assert record is None or found.index.hit(record.slot, turn(1, 8).keys) == 0


def test_23_a_thousand_bodies_that_begin_with_something_new_do_not_fill_memory() -> None:
    """Whatever clients send, what is kept is bounded by the replicas' own caches."""
    story = fleet("a", "b")
    for number in range(1000):
        send = story.send(40_000, 10, Prefix(40_000, block_keys([number, *range(156)], 256), key_of(b"%d" % number)))
        answer(story, send.request)
    index = policy(story).index
    assert sum(cache.tokens for cache in index._caches.values()) <= 2 * 160_000
    assert len(index) < 2 * 200


def test_an_explanation_shows_the_others_at_what_they_would_cost_this_prompt() -> None:
    story = fleet("a", "b", "c")
    first = ask(story, turn(1, 8))
    answer(story, first.request)
    send = ask(story, turn(1, 8))
    why = explain(story.dispatcher.fleet, story.now, "m", "", send, prefix=turn(1, 8))
    assert why is not None and why.policy == "prefix_affinity" and len(why.others) == 2
    assert all(other.score > send.decision.score for other in why.others)
    assert send.decision.reason == CACHED_HERE


def test_a_log_holds_hashes_and_comes_back_the_same() -> None:
    arrived = ev.Arrived(1.0, 1, "m", 9000, 100, 60.0, prefix=turn(3, 8))
    back = from_list(json.loads(json.dumps(to_list(arrived))))
    assert isinstance(back, ev.Arrived) and back.prefix is not None
    assert (back.prefix.tokens, tuple(back.prefix.keys), back.prefix.home) == turn(3, 8)[:3]
