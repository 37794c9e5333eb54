"""When requests wait in the gateway, who goes first, and when waiting ends. 过热熔断 is here too."""

from __future__ import annotations

from random import Random

from fleet_story import Story, spread

from kilocard.dispatch import events as ev
from kilocard.dispatch.config import PoolFacts
from kilocard.dispatch.dispatcher import Dispatcher
from kilocard.dispatch.instructions import Hold, Refuse, Send
from kilocard.spec.model import HoldSpec, ModelSpec, OverheatSpec


def code(answer: object) -> str:
    assert isinstance(answer, Refuse)
    return answer.error.code


def test_no_replica_for_a_moment_is_a_wait_not_an_error() -> None:
    """vllm-router#140."""
    story = Story()
    assert story.arrive() == Hold(1, "no_replica")
    story.wait(3)
    assert [s.request for s in story.up("a") if isinstance(s, Send)] == [1]


def test_no_replica_for_too_long() -> None:
    story = Story(hold=HoldSpec(10, 2.0))
    story.arrive()
    assert story.wait(1.8) == []
    (refusal,) = story.wait(0.4)
    assert code(refusal) == "no_replica"
    assert isinstance(refusal, Refuse)
    assert refusal.error.http_status == 503 and refusal.error.retry_after


def test_the_requests_own_deadline_is_nearer() -> None:
    story = Story()
    story.arrive(deadline=0.5)
    assert [code(a) for a in story.wait(1)] == ["no_replica"]


def test_hold_is_bounded_and_first_come_first_served() -> None:
    story = Story("a", facts=PoolFacts(max_in_flight=1), hold=HoldSpec(3, 60.0))
    running = story.send()
    held = [story.arrive() for _ in range(3)]
    assert held == [Hold(n, "all_busy") for n in (2, 3, 4)]
    assert code(story.arrive()) == "hold_full"
    order = []
    for _ in range(3):
        (sent,) = story.finish(running.request)  # one freed slot, one release
        assert isinstance(sent, Send)
        order.append(sent.request)
        running = sent
    assert order == [2, 3, 4]


def test_abandoned_while_held_frees_the_place() -> None:
    story = Story(hold=HoldSpec(1, 60.0))
    story.arrive()
    assert story.tell(ev.Abandoned(0.0, 1)) == []
    assert isinstance(story.arrive(), Hold)
    assert story.dispatcher.live == 1


def test_overheat_by_gauges_with_hysteresis() -> None:
    story = Story("a", overheat=OverheatSpec(waiting=8))
    story.scrape("a", 30, 8)
    assert story.state("a") == "overheated"
    assert isinstance(story.arrive(), Hold)
    story.scrape("a", 30, 5)
    assert story.state("a") == "overheated", "below the threshold is not yet recovered"
    assert [type(i) for i in story.scrape("a", 30, 4)] == [Send]
    assert story.dispatcher.stats.overheats == 1


def test_overheat_by_own_count_before_any_scrape() -> None:
    """R27: max_num_seqs 4 and a threshold of 2: the seventh waits here, not there."""
    story = Story("a", facts=PoolFacts(max_running=4), overheat=OverheatSpec(waiting=2))
    assert [type(story.arrive()) for _ in range(7)] == [Send] * 6 + [Hold]


def test_first_tokens_prove_that_nobody_waits() -> None:
    """A burst right after a sample with a queue: streams that flow heal the estimate without a new sample."""
    story = Story("a", overheat=OverheatSpec(waiting=8))
    sent = [story.send() for _ in range(10)]
    story.scrape("a", 0, 10)
    assert story.state("a") == "overheated"
    for send in sent[:6]:
        story.tell(ev.FirstContent(0.1, send.request))
    assert story.state("a") == "ready"


def test_a_stale_sample_takes_nobody_out() -> None:
    """llm-d-router#2408: never fail closed."""
    story = Story("a")
    story.scrape("a", 30, 50)
    assert isinstance(story.arrive(), Hold)
    story.tell(ev.Scraped(0.0, "a", None))
    released = story.wait(5.1)
    assert [type(i) for i in released] == [Send]
    assert story.state("a") == "ready"


def test_full_kv_alone_is_normal_but_not_with_a_queue() -> None:
    story = Story("a")
    story.scrape("a", 30, 0, 0.99)
    assert story.state("a") == "ready"
    story.scrape("a", 30, 1, 0.99)
    assert story.state("a") == "overheated"
    story.scrape("a", 30, 0, 0.99)
    assert story.state("a") == "ready"


def test_full_kv_where_the_queue_is_unknown() -> None:
    story = Story("a")
    story.scrape("a", 5, None, 0.97)
    assert story.state("a") == "overheated"
    story.scrape("a", 5, None, 0.90)
    assert story.state("a") == "overheated"
    story.scrape("a", 5, None, 0.80)
    assert story.state("a") == "ready"


def test_recovery_does_not_release_a_burst() -> None:
    """One sample says 'no queue': each send counts at once, so the replica gets its threshold, not everything."""
    story = Story("a", facts=PoolFacts(max_running=8), overheat=OverheatSpec(waiting=4))
    while isinstance(story.arrive(), Send):
        pass
    for _ in range(50):
        story.arrive()
    story.tell(ev.ReplicaGone(story.now, "a"))
    story.up("b")
    story.wait(2)
    assert story.in_flight("b") == 8 + 4


def test_unknown_capacity_is_filled_step_by_step() -> None:
    story = Story(hold=HoldSpec(1000, 60.0))
    for _ in range(300):
        story.arrive()
    assert len(story.up("a")) == 16
    story.up("b", "c", "d")
    story.wait(1)
    assert [story.in_flight(r) for r in "abcd"] == [75, 75, 75, 75]


def test_measured_capacity_bounds_what_kv_can_hold() -> None:
    """max_num_seqs 256, but KV for 10: after two samples with a queue the eleventh counts as waiting."""
    story = Story("a", facts=PoolFacts(max_running=256))
    sent = [story.send() for _ in range(14)]
    for _ in range(2):
        story.now += 1
        story.scrape("a", 10, 4, 0.95)
    replica = story.dispatcher.fleet.replicas["a"]
    assert (replica.capacity, replica.waiting) == (10, 4)
    for send in sent[:6]:
        story.finish(send.request)
    assert replica.waiting == 0
    for _ in range(40):
        story.now += 1
        story.scrape("a", 8, 0, 0.3)
    assert replica.capacity == 256, "forgotten by and by"


def test_one_reading_without_a_queue_does_not_let_a_whole_hold_queue_through() -> None:
    """Nobody says how many it runs at once; two readings with a queue did. Hundreds wait in the gateway when a reading
    comes that shows none: it gets a tenth more than that, and what overheat lets wait."""
    story = Story("a")
    for _ in range(20):
        story.send()
    for _ in range(2):
        story.now += 1
        story.scrape("a", 10, 10, 0.2)
    for _ in range(300):
        story.arrive()
    for id in range(18):
        story.finish(id)
    story.now += 1
    story.scrape("a", 2, 0, 0.05)
    story.wait(1)
    assert story.in_flight("a") == 11 + 4


def test_two_models_share_a_pool_fairly() -> None:
    models = {name: ModelSpec(name, {"p": 1}) for name in ("m", "n")}
    dispatcher = Dispatcher(models, {"p": PoolFacts(max_in_flight=1)}, Random(0))
    dispatcher.handle(ev.ReplicaUp(0.0, "a", "p"))
    for id, name in enumerate(["m", "n", "m"]):
        dispatcher.handle(ev.Arrived(id * 0.1, id, name, 1, 1, 99.0))
    order = []
    for id in range(2):
        (send,) = dispatcher.handle(ev.Finished(1.0, id, 200, 1))
        assert isinstance(send, Send)
        order.append(send.request)
    assert order == [1, 2]


def test_held_requests_spread_when_replicas_come() -> None:
    story = Story(facts=PoolFacts(max_running=4))
    for _ in range(8):
        story.arrive()
    sent = [*story.up("a", "b"), *story.wait(0.5)]
    assert sum(spread(sent).values()) == 8


def test_a_newcomer_does_not_overtake_who_waits() -> None:
    story = Story(hold=HoldSpec(1000, 60.0))
    for _ in range(40):
        story.arrive()
    assert len(story.up("a")) == 16
    assert isinstance(story.arrive(), Hold), "there is room at a, but 24 were here before"
    assert [i.request for i in story.wait(0.3) if isinstance(i, Send)] == list(range(17, 42))


def test_deadlines_of_those_who_left_take_no_memory() -> None:
    """INV-11."""
    story = Story(hold=HoldSpec(10, 600.0))
    for _ in range(2000):
        story.arrive()
        story.tell(ev.Abandoned(story.now, story.count))
    assert len(story.dispatcher._room._deadlines) < 100


def test_the_drivers_own_timeout_while_held() -> None:
    story = Story("a", facts=PoolFacts(max_in_flight=1))
    story.send()
    story.arrive()
    assert [code(i) for i in story.fail(2, ev.Fault.TOTAL)] == ["hold_timeout"]
    assert (story.dispatcher.live, story.dispatcher.held) == (1, 0)
