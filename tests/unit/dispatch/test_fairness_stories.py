"""Priority, fair sharing, bounds and deadlines of the hold queue, through the whole dispatcher."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from random import Random
from types import FrameType
from typing import Any

import pytest
from fleet_story import Story

from kilocard.dispatch import events as ev
from kilocard.dispatch.config import PoolFacts
from kilocard.dispatch.dispatcher import Dispatcher
from kilocard.dispatch.instructions import Hold, Refuse, Send
from kilocard.spec.model import HoldSpec, ModelSpec

ONE = PoolFacts(max_in_flight=1)
HIGH, NORMAL, LOW = range(3)


ROOMY = HoldSpec(100_000, 60.0)


def busy(hold: HoldSpec = ROOMY, **spec: Any) -> Story:
    """One replica with one slot, which is taken by request 1."""
    story = Story("a", facts=ONE, hold=hold, **spec)
    story.send()
    return story


def serve(story: Story, running: int, count: int, output: int | None = 100) -> list[int]:
    """Ends what runs, `count` times; who came in its place, in order."""
    came = []
    for _ in range(count):
        (sent,) = (answer for answer in story.finish(running, output) if isinstance(answer, Send))
        running = sent.request
        came.append(running)
    return came


def refused(answers: object) -> list[tuple[int, str]]:
    assert isinstance(answers, list)
    return [(answer.request, answer.error.code) for answer in answers if isinstance(answer, Refuse)]


def test_priority_is_strict() -> None:
    story = busy()
    for priority in (LOW, NORMAL, LOW, HIGH, NORMAL, HIGH):
        story.arrive(priority=priority)
    assert serve(story, 1, 6) == [5, 7, 3, 6, 2, 4]


def test_a_priority_outside_the_list_is_its_nearest_end() -> None:
    story = busy()
    for priority in (99, NORMAL, -5):
        story.arrive(priority=priority)
    assert serve(story, 1, 3) == [4, 3, 2]


def test_a_flood_of_10000_does_not_push_back_one_request() -> None:
    story = busy()
    for _ in range(10_000):
        story.arrive(tenant="flood")
    single = story.arrive(tenant="quiet")
    assert single.request in serve(story, 1, 2)


def test_tokens_are_shared_by_weight() -> None:
    """Equal weights, one with requests of four times the tokens; then a third with a weight of three."""
    story = busy()
    for _ in range(200):
        story.arrive(512, 1024, tenant="short")
        story.arrive(2560, 4096, tenant="long")
        story.arrive(512, 1024, tenant="heavy", weight=3.0)
    tenant = {number + 2: ("short", "long", "heavy")[number % 3] for number in range(600)}
    count = Counter(tenant[id] for id in serve(story, 1, 190, None))
    # 5 a request against 19, and three times the tokens for the last
    assert count["heavy"] == pytest.approx(3 * count["short"], abs=3)
    assert 5 * count["short"] == pytest.approx(19 * count["long"], abs=25)


def test_another_weight_holds_though_its_tenant_never_stops_to_wait() -> None:
    """A reload changes it; where weights matter the queue is never empty."""
    story = busy()
    tenant: dict[int, str] = {}

    def come(name: str, weight: float) -> None:
        tenant[story.arrive(tenant=name, weight=weight).request] = name

    for _ in range(50):
        come("a", 1.0)
        come("b", 1.0)
    running, counts = 1, Counter[str]()
    for turn in range(300):
        (running,) = serve(story, running, 1)
        come(tenant[running], 3.0 if tenant[running] == "a" else 1.0)
        counts[tenant[running]] += turn >= 100
    assert counts["a"] == pytest.approx(150, abs=3)


def test_declaring_much_and_using_little_is_put_right() -> None:
    story = busy()
    for _ in range(300):
        story.arrive(100, 4096, tenant="careless")
        story.arrive(100, 10, tenant="exact")
    served = serve(story, 1, 200, 10)
    assert abs(sum(id % 2 for id in served) - 100) <= 5


def test_within_a_class_only() -> None:
    """A tenant's share of one class says nothing in another."""
    story = busy()
    for _ in range(4):
        story.arrive(tenant="a", priority=HIGH)
    story.arrive(tenant="a", priority=LOW)
    story.arrive(tenant="b", priority=LOW)
    assert serve(story, 1, 6) == [2, 3, 4, 5, 6, 7]


def test_a_retry_goes_first_within_its_class() -> None:
    story = busy()
    story.arrive(tenant="x")
    story.arrive(tenant="y", priority=HIGH)
    assert refused(story.fail(1, ev.Fault.CONNECT)) == []
    story.wait(3)  # the replica rests, then takes one at a time
    order = [answer.request for answer in story.heard if isinstance(answer, Send)][1:]
    order += serve(story, order[-1], 2)
    assert order == [3, 1, 2]


def test_a_short_request_waits_for_one_long_one_of_its_own_tenant_at_most() -> None:
    story = busy()
    for _ in range(50):
        story.arrive(8000, 2000)
    running = serve(story, 1, 10)[-1]
    short = [story.arrive(100, 30).request for _ in range(3)]
    came = serve(story, running, 5)
    assert set(short) < set(came)
    assert [id for id in came if id not in short] == [12, 13], "the long ones first come, first served"


# --- bounds


def test_a_higher_class_takes_the_place_of_the_newest_of_the_lowest() -> None:
    story = busy(HoldSpec(3, 60.0))
    for priority in (NORMAL, LOW, LOW):
        story.arrive(priority=priority)
    answers = story.arrive_all(priority=HIGH)
    assert answers[0] == Hold(5, "all_busy")
    assert refused(answers) == [(4, "hold_full")]
    assert refused(story.arrive_all(priority=NORMAL)) == [(3, "hold_full")]
    assert refused(story.arrive_all(priority=LOW)) == [(7, "hold_full")], "nobody has less right to stay"
    assert refused(story.arrive_all(priority=NORMAL)) == [(8, "hold_full")], "as many normal ones are its own"
    assert (story.dispatcher.held, story.dispatcher.live) == (3, 4)
    assert serve(story, 1, 3) == [5, 2, 6]


@pytest.mark.parametrize(
    ("room", "said"), [(0, "is busy; try"), (1, "is busy, and 1 waits that goes first; try"), (2, "and 2 wait that go")]
)
def test_who_makes_way_is_told_how_many_go_first(room: int, said: str) -> None:
    """The newcomer is one of them."""
    story = busy(HoldSpec(room, 60.0))
    for _ in range(room):
        story.arrive(priority=LOW)
    (refusal,) = (answer for answer in story.arrive_all(priority=HIGH) if isinstance(answer, Refuse))
    assert said in refusal.error.message


def test_one_tenant_does_not_keep_others_out_of_a_full_queue() -> None:
    story = busy(HoldSpec(6, 60.0))
    for _ in range(6):
        story.arrive(tenant="flood")
    assert refused(story.arrive_all(tenant="flood")) == [(8, "hold_full")]
    assert refused(story.arrive_all(tenant="b")) == [(7, "hold_full")], "the newest of the longest"
    assert refused(story.arrive_all(tenant="b")) == [(6, "hold_full")]
    assert refused(story.arrive_all(tenant="b")) == [(5, "hold_full")]
    assert refused(story.arrive_all(tenant="b")) == [(12, "hold_full")], "three each: its own is as long"
    assert refused(story.arrive_all(tenant="c")) == [(11, "hold_full")]


def test_the_newest_makes_way_whatever_its_size() -> None:
    story = busy(HoldSpec(4, 60.0))
    for prompt in (100, 8000, 100, 8000):
        story.arrive(prompt, 30, tenant="flood")
    assert refused(story.arrive_all(tenant="b")) == [(5, "hold_full")]
    assert refused(story.arrive_all(tenant="b")) == [(4, "hold_full")]


def test_a_retry_takes_the_place_of_one_that_was_not_sent_yet() -> None:
    story = Story("a", facts=ONE, hold=HoldSpec(2, 60.0))
    story.send()
    story.arrive(), story.arrive()
    answers = list(story.fail(1, ev.Fault.CONNECT))
    assert answers[0] == Hold(1, "all_ejected")
    assert refused(answers) == [(3, "hold_full")]


def test_a_queue_of_nobody_refuses_at_once() -> None:
    assert refused(busy(HoldSpec(0, 60.0)).arrive_all(priority=HIGH)) == [(2, "hold_full")]


def test_who_leaves_frees_the_place_at_once() -> None:
    story = busy(HoldSpec(2, 60.0))
    story.arrive(tenant="x")
    story.arrive(tenant="y")
    story.tell(ev.Abandoned(story.now, 2))
    assert isinstance(story.arrive(tenant="y"), Hold)
    assert serve(story, 1, 2) == [3, 4]


# --- deadlines


def test_a_request_whose_deadline_is_over_is_never_sent() -> None:
    """Between two ticks, too: the slot that frees goes to the next."""
    story = busy()
    story.arrive(deadline=0.55)
    story.arrive()
    story.wait(0.5)
    story.now = 0.58
    answers = list(story.finish(1))
    assert refused(answers) == [(2, "deadline_exceeded")]
    assert [answer.request for answer in answers if isinstance(answer, Send)] == [3]


def test_a_deadline_that_is_over_at_arrival() -> None:
    story = Story("a")
    story.now = 5.0
    assert refused(story.arrive_all(deadline=5.0)) == [(1, "deadline_exceeded")]
    assert story.dispatcher.live == 0


def test_deadline_and_hold_timeout_have_codes_of_their_own() -> None:
    story = busy(HoldSpec(10, 2.0))
    story.arrive(deadline=1.0)
    story.arrive()
    assert refused(story.wait(1.05)) == [(2, "deadline_exceeded")]
    (refusal,) = story.wait(1.0)
    assert isinstance(refusal, Refuse)
    assert (refusal.request, refusal.error.code) == (3, "hold_timeout")
    assert refusal.error.http_status == 503 and refusal.error.retry_after


# --- several queues before one pool


def two_models(weights: tuple[int, int] = (1, 1)) -> Dispatcher:
    models = {name: ModelSpec(name, {"p": 1}, hold=HoldSpec(100_000, 1e6)) for name in ("m", "n")}
    dispatcher = Dispatcher(models, {"p": ONE}, Random(0))
    dispatcher.handle(ev.ReplicaUp(0.0, "a", "p"))
    return dispatcher


def ask(dispatcher: Dispatcher, id: int, model: str, tenant: str, priority: int = NORMAL, weight: float = 1.0) -> None:
    dispatcher.handle(ev.Arrived(id * 1e-3, id, model, 100, 100, 1e6, tenant, priority, weight))


def play(dispatcher: Dispatcher, running: int, count: int) -> list[int]:
    came = []
    for _ in range(count):
        (sent,) = dispatcher.handle(ev.Finished(50.0, running, 200, 100))
        assert isinstance(sent, Send)
        running = sent.request
        came.append(running)
    return came


def test_a_flood_of_one_model_does_not_hold_up_another_models_request_on_the_same_pool() -> None:
    dispatcher = two_models()
    for id in range(1000):
        ask(dispatcher, id, "m", "flood")
    ask(dispatcher, 1000, "n", "quiet")
    assert 1000 in play(dispatcher, 0, 2)


def test_priority_counts_between_models_too() -> None:
    dispatcher = two_models()
    for id in range(10):
        ask(dispatcher, id, "m", "a")
    ask(dispatcher, 10, "n", "b", LOW)
    ask(dispatcher, 11, "n", "c", HIGH)
    assert play(dispatcher, 0, 11) == [11, *range(1, 10), 10]


def test_models_of_one_pool_share_it_by_the_weights_of_who_waits() -> None:
    """Three tenants wait for m and one for n: each gets a quarter."""
    dispatcher = two_models()
    for id in range(800):
        ask(dispatcher, id, "n" if id % 4 == 3 else "m", f"t{id % 4}")
    counts = Counter(id % 4 for id in play(dispatcher, 0, 200))
    assert max(counts.values()) - min(counts.values()) <= 2


def test_a_tenant_gains_nothing_by_asking_for_more_models_of_one_pool() -> None:
    """One asks for both models, another for one of them: half each. Of its half the first gets half from each model."""
    dispatcher = two_models()
    for id in range(900):
        ask(dispatcher, id, "mnm"[id % 3], ("both", "both", "one")[id % 3])
    counts = Counter(id % 3 for id in play(dispatcher, 0, 400))
    assert counts[2] == pytest.approx(200, abs=4)
    assert counts[0] == pytest.approx(100, abs=4)


def test_a_tenant_that_waits_for_one_model_only_has_all_of_its_weight_there_again() -> None:
    dispatcher = two_models()
    for id in range(600):
        ask(dispatcher, id, "m", ("a", "b")[id % 2])
    for id in range(600, 610):  # a few of the other model, which soon are done
        ask(dispatcher, id, "n", "a")
    running = play(dispatcher, 0, 100)[-1]
    counts = Counter(id % 2 for id in play(dispatcher, running, 200))
    assert counts[0] == pytest.approx(100, abs=2)


def test_a_reload_that_lets_models_share_a_pool_shares_out_weights_too() -> None:
    specs = {name: ModelSpec(name, {pool: 1}, hold=HoldSpec(100_000, 1e6)) for name, pool in (("m", "p"), ("n", "q"))}
    dispatcher = Dispatcher(specs, {"p": ONE, "q": ONE}, Random(0))
    dispatcher.handle(ev.ReplicaUp(0.0, "a", "p"))  # q has none: who wants n waits
    for id in range(900):
        ask(dispatcher, id, "mnm"[id % 3], ("both", "both", "one")[id % 3])
    shared = specs | {"n": ModelSpec("n", {"p": 1}, hold=HoldSpec(100_000, 1e6))}
    dispatcher.handle(ev.Reconfigured(10.0, shared, {"p": ONE}, 1.0))
    counts = Counter(id % 3 for id in play(dispatcher, 0, 400))
    assert counts[2] == pytest.approx(200, abs=4)
    dispatcher.handle(ev.Reconfigured(60.0, specs, {"p": ONE, "q": ONE}, 1.0))
    running = next(iter(id for id, one in dispatcher._requests.items() if one.replica is not None))
    counts = Counter(id % 3 for id in play(dispatcher, running, 100))
    assert (counts[1], counts[2]) == (0, pytest.approx(50, abs=2))


def test_a_queue_that_was_empty_has_no_credit_against_the_others_of_its_pool() -> None:
    dispatcher = two_models()
    for id in range(300):
        ask(dispatcher, id, "m", "a")
    running = play(dispatcher, 0, 100)[-1]
    for id in range(300, 400):
        ask(dispatcher, id, "n", "b")
    assert sum(id >= 300 for id in play(dispatcher, running, 60)) == pytest.approx(30, abs=1)


# --- size


def steps(work: Callable[[], object]) -> int:
    """Lines of Python that are run, each turn of a loop counted: the same on every machine."""
    count = 0

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def test_a_release_from_30000_held_requests_of_1000_tenants_takes_no_more_steps() -> None:
    def of(held: int) -> int:
        story = busy(HoldSpec(200_000, 1e6))
        for number in range(held):
            story.dispatcher.handle(ev.Arrived(0.0, number + 2, "m", 100, 100, 1e6, f"t{number % 1000}"))
        return steps(lambda: serve(story, 1, 100))

    assert of(30_000) <= 1.05 * of(2_000)


def test_a_refusal_at_a_full_queue_takes_no_more_steps() -> None:
    def of(held: int) -> int:
        story = busy(HoldSpec(held, 1e6))
        for number in range(held):
            story.dispatcher.handle(ev.Arrived(0.0, number + 2, "m", 100, 100, 1e6, f"t{number % 1000}"))
        story.count = held + 1
        return steps(lambda: [story.arrive_all(tenant="new", priority=number % 3) for number in range(30)])

    assert of(10_000) <= 1.5 * of(2_000), "not five times"


def test_a_reload_counts_who_waits_for_many_models_of_a_pool_once_for_each_queue() -> None:
    def of(queues: int) -> int:
        models = {f"m{n}": ModelSpec(f"m{n}", {"p": 1}, hold=HoldSpec(100_000, 1e6)) for n in range(queues)}
        dispatcher = Dispatcher(models, {"p": ONE}, Random(0))
        for number in range(100 * queues):
            ask(dispatcher, number, f"m{number % queues}", f"t{number // queues}")
        return steps(lambda: dispatcher.handle(ev.Reconfigured(1e3, models, {"p": ONE}, 1.0)))

    assert of(20) <= 2.2 * of(10), "not four times"
