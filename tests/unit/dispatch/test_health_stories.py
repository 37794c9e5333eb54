"""Replicas that fail: ejected, probed, tried, back; and what becomes of their requests."""

from __future__ import annotations

import pytest
from fleet_story import Story, spread

from kilocard.core.errors import UpstreamError, UpstreamTimeout
from kilocard.dispatch import events as ev
from kilocard.dispatch.config import PoolFacts
from kilocard.dispatch.events import Fault
from kilocard.dispatch.health import TRANSITIONS, State, may_be_out
from kilocard.dispatch.instructions import Drained, Hold, Probe, Refuse, Send
from kilocard.spec.model import EjectSpec, HoldSpec, RetrySpec

QUICK = EjectSpec(backoff=2.0)


def eject(story: Story, bad: str) -> None:
    """Arrivals until one lands on `bad`, which refuses the connection."""
    for _ in range(50):
        send = story.send()
        if send.replica == bad:
            (again,) = story.fail(send.request, Fault.CONNECT)
            assert isinstance(again, Send) and again.replica != bad
            story.finish(send.request)
            return
        story.finish(send.request)
    raise AssertionError(f"{bad} got nothing")


def test_first_connect_error_ejects_and_the_request_goes_elsewhere() -> None:
    """dynamo#8182."""
    story = Story("a", "b", "c")
    eject(story, "b")
    assert story.state("b") == "ejected"
    assert "b" not in spread([story.send() for _ in range(20)])


def test_back_off_probe_trial_ready() -> None:
    story = Story("a", "b", eject=QUICK)
    eject(story, "b")
    probes = story.wait(2.6)
    assert probes == [Probe("b")]
    assert story.state("b") == "probing"
    story.tell(ev.Probed(story.now, "b", True))
    assert story.state("b") == "half_open"
    trial = next(s for s in (story.send() for _ in range(9)) if s.replica == "b")
    assert story.state("b") == "trial"
    assert "b" not in spread([story.send() for _ in range(9)]), "one at a time"
    story.tell(ev.FirstContent(story.now, trial.request))
    assert story.state("b") == "slow_start"
    story.wait(10.2)
    assert story.state("b") == "ready"
    assert story.dispatcher.stats.recoveries == 1


def test_a_failed_trial_and_a_failed_probe_make_it_longer() -> None:
    story = Story("a", "b", eject=EjectSpec(backoff=2.0, backoff_max=60.0))
    eject(story, "b")
    health = story.dispatcher.fleet.replicas["b"].health
    pauses = [health.until - story.now]
    story.wait(3)
    story.tell(ev.Probed(story.now, "b", False))
    pauses.append(health.until - story.now)
    story.wait(6)
    story.tell(ev.Probed(story.now, "b", True))
    trial = next(s for s in (story.send() for _ in range(9)) if s.replica == "b")
    story.fail(trial.request, Fault.STATUS, 500)
    assert story.state("b") == "ejected"
    pauses.append(health.until - story.now)
    assert 1.5 <= pauses[0] <= 2.5 and 3 <= pauses[1] <= 5 and 6 <= pauses[2] <= 10


def test_the_trial_comes_even_where_nobody_is_busy() -> None:
    """One request at a time: an idle healthy replica must not keep the half-open one from ever being tried."""
    story = Story("a", "b", eject=QUICK)
    eject(story, "b")
    while not story.wait(0.1):
        pass
    story.tell(ev.Probed(story.now, "b", True))
    for _ in range(100):
        story.wait(0.1)
        send = story.send()
        story.tell(ev.FirstContent(story.now, send.request))
        story.finish(send.request)
    assert story.state("b") in ("slow_start", "ready")


def test_who_hung_is_asked_for_a_token() -> None:
    """gw-23: an API server answers its pages whose engine is dead."""
    for fault, token in ((Fault.FIRST_TOKEN, True), (Fault.IDLE, True), (Fault.STATUS, False), (Fault.CONNECT, False)):
        story = Story("a", "b", policy="round_robin", eject=EjectSpec(consecutive=1, backoff=2.0))
        send = story.send()
        story.fail(send.request, fault)
        assert story.wait(2.6) == [Probe(send.replica, token=token)], fault


def test_an_unanswered_probe_counts_as_failed() -> None:
    story = Story("a", "b", eject=QUICK)
    eject(story, "b")
    assert [type(i) for i in story.wait(20)] == [Probe, Probe]


def test_black_hole_gets_no_traffic_after_three() -> None:
    """linkerd2#11669: 500 at once looks fastest and emptiest; clients see no error."""
    story = Story("hole", "b", "c", policy="least_connections")
    errors = hits = 0
    slow: list[int] = []
    for _ in range(300):
        story.now += 0.01
        answer = story.arrive()
        while isinstance(answer, Send) and answer.replica == "hole":
            hits += 1
            answer = story.fail(answer.request, Fault.STATUS, 500)[0]
        errors += isinstance(answer, Refuse)
        slow.append(story.count)
        if len(slow) > 10:
            story.finish(slow.pop(0))
    assert errors == 0
    assert hits == 3
    assert story.state("hole") == "ejected"


def test_error_share_ejects_where_successes_lie_between() -> None:
    story = Story("a", "b", policy="round_robin", eject=EjectSpec(consecutive=99))
    for n in range(60):
        send = story.send()
        if send.replica == "a" and n % 4:
            send_again = story.fail(send.request, Fault.STATUS, 500)[0]
            assert isinstance(send_again, Send)
        story.finish(send.request)
        if story.state("a") == "ejected":
            break
    assert story.dispatcher.stats.ejections["error_share"] == 1


def test_what_says_nothing_about_a_replica() -> None:
    story = Story("a", "b")
    for _ in range(20):
        first, second, third = story.send(), story.send(), story.send()
        story.fail(first.request, Fault.TOTAL)
        story.tell(ev.Abandoned(story.now, second.request))
        story.tell(ev.Finished(story.now, third.request, 400, None))
    assert (story.state("a"), story.state("b")) == ("ready", "ready")
    assert story.dispatcher.live == 0


@pytest.mark.parametrize("fault", [Fault.FIRST_TOKEN, Fault.IDLE, Fault.RESET, Fault.STATUS, Fault.PROTOCOL])
def test_faults_that_count(fault: Fault) -> None:
    story = Story("a", "b", policy="round_robin")
    for _ in range(6):
        send = story.send()
        if send.replica == "a":
            story.fail(send.request, fault)
        story.finish(send.request)
    assert story.state("a") == "ejected"


def test_the_floor() -> None:
    """Never more than half, never the last; a replica that has to stay looks busier."""
    story = Story("a", "b", "c", "d", retry=RetrySpec(1))
    for _ in range(40):
        send = story.send()
        story.fail(send.request, Fault.STATUS, 500)
    states = [story.state(r) for r in "abcd"]
    assert states.count("ejected") == 2 and states.count("ready") == 2
    assert story.dispatcher.stats.ejections["floor"] > 0
    assert isinstance(story.arrive(), Send)
    assert [may_be_out(n, 0.5) for n in range(6)] == [0, 0, 1, 1, 2, 2]
    assert may_be_out(3, 1.0) == 2


def test_the_floor_holds_when_the_others_leave() -> None:
    story = Story("a", "b", "c", "d")
    eject(story, "a")
    eject(story, "b")
    story.tell(ev.ReplicaGone(0.0, "c"))
    story.tell(ev.ReplicaDraining(0.0, "d"))
    assert sorted([story.state("a"), story.state("b")]) == ["ejected", "half_open"] or story.state("a") == "half_open"
    assert isinstance(story.arrive(), Send)


def test_the_only_replica_restarts_and_requests_wait_for_it() -> None:
    """Connection refused for 20 s: nothing was processed, so nobody is refused."""
    story = Story("a", hold=HoldSpec(100, 60.0))
    connects = 0
    answers = [story.arrive()]
    while story.now < 20:
        for answer in answers:
            if isinstance(answer, Send):
                connects += 1
                answers_after = story.fail(answer.request, Fault.CONNECT)
                assert all(isinstance(i, Hold) for i in answers_after)
        answers = story.wait(0.1)
        if story.count < 10:
            answers.append(story.arrive())
    assert 10 <= connects <= 40, "a steady but gentle knock"
    assert story.dispatcher.held + sum(isinstance(a, Send) for a in answers) == 10
    for send in [*answers, *story.wait(3)]:
        if isinstance(send, Send):
            story.tell(ev.FirstContent(story.now, send.request))
    story.wait(1)
    assert story.dispatcher.held == 0
    assert story.in_flight("a") == 10


def test_the_only_replica_reset_once() -> None:
    story = Story("a")
    send = story.send()
    assert [type(i) for i in story.fail(send.request, Fault.RESET)] == [Hold]
    (again,) = story.wait(0.3)
    assert isinstance(again, Send) and again.attempt == 2
    assert story.dispatcher.stats.retries == {"reset": 1}


def test_an_error_status_of_the_only_replica_is_final() -> None:
    story = Story("a")
    (refusal,) = story.fail(story.send().request, Fault.STATUS, 500)
    assert isinstance(refusal, Refuse) and isinstance(refusal.error, UpstreamError)
    assert (refusal.error.http_status, refusal.error.code) == (502, "status")


def test_timeouts_are_504_by_name() -> None:
    story = Story("a")
    (refusal,) = story.fail(story.send().request, Fault.FIRST_TOKEN)
    assert isinstance(refusal, Refuse) and isinstance(refusal.error, UpstreamTimeout)
    assert (refusal.error.http_status, refusal.error.code) == (504, "first_token_timeout")


def test_no_retry_after_content() -> None:
    story = Story("a", "b")
    send = story.send()
    story.tell(ev.FirstContent(0.0, send.request))
    (refusal,) = story.fail(send.request, Fault.RESET)
    assert isinstance(refusal, Refuse) and refusal.error.code == "reset"


def test_attempts_are_on_different_replicas_and_bounded() -> None:
    story = Story("a", "b", "c", "d", "e")
    send = story.send()
    seen = [send.replica]
    answer = story.fail(send.request, Fault.RESET)[0]
    while isinstance(answer, Send):
        seen.append(answer.replica)
        answer = story.fail(answer.request, Fault.RESET)[0]
    assert len(seen) == len(set(seen)) == 3
    assert isinstance(answer, Refuse)


def test_a_retry_waits_for_a_hot_replica_it_has_not_tried() -> None:
    story = Story("a", "b", facts=PoolFacts(max_in_flight=1))
    first, second = story.send(), story.send()
    assert story.fail(first.request, Fault.RESET) == [Hold(first.request, "all_busy")]
    story.finish(second.request)
    (again,) = story.wait(0.2)
    assert isinstance(again, Send) and again.replica == second.replica


def test_retries_are_budgeted() -> None:
    """A total outage must not be multiplied by the attempts."""
    story = Story(*(f"r{i}" for i in range(50)), eject=EjectSpec(consecutive=10**6, minimum=10**6))
    sends = 0
    for _ in range(2000):
        story.now += 0.001
        answer = story.arrive()
        while isinstance(answer, Send):
            sends += 1
            answer = story.fail(answer.request, Fault.STATUS, 500)[0]
    assert sends < 2000 * 1.3 + 60
    assert story.dispatcher.fleet.models["m"].budget.denied > 1000


def test_a_refused_connection_is_tried_elsewhere_even_when_the_budget_is_used_up() -> None:
    """It was no work for anybody, so it multiplies nothing."""
    story = Story(*(f"r{i}" for i in range(50)), eject=EjectSpec(consecutive=10**6, minimum=10**6))
    while not story.dispatcher.fleet.models["m"].budget.denied:
        answer = story.arrive()
        while isinstance(answer, Send):
            answer = story.fail(answer.request, Fault.STATUS, 500)[0]
    for _ in range(10):  # ten arrivals earn two retries
        refused = story.send()
        assert isinstance(story.fail(refused.request, Fault.CONNECT)[0], Send)


def test_a_crash_with_all_its_streams_is_survived() -> None:
    """ray#65698: one of four dies with 64 requests in flight that have no byte yet."""
    story = Story("a", "b", "c", "d")
    sends = [story.send() for _ in range(256)]
    lost = [s for s in sends if s.replica == "a"]
    assert len(lost) == 64
    answers = [story.fail(s.request, Fault.RESET)[0] for s in lost]
    assert all(isinstance(a, Send) and a.replica != "a" for a in answers)
    assert story.state("a") == "ejected"


def test_gone_and_back_with_requests_still_out() -> None:
    """llm-d-router#1739: the old life's endings must not touch the new one's counts."""
    story = Story("a")
    old = [story.send() for _ in range(3)]
    story.tell(ev.ReplicaGone(0.0, "a"))
    story.up("a")
    new = story.send()
    for send in old:
        story.finish(send.request)
    assert story.in_flight("a") == 1
    story.finish(new.request)
    story.finish(new.request)
    assert story.in_flight("a") == 0
    assert story.dispatcher.stats.late_events == 1


def test_old_requests_do_not_eject_a_recovered_replica() -> None:
    story = Story("a", "b", eject=QUICK)
    old = [s for s in (story.send() for _ in range(20)) if s.replica == "b"]
    eject(story, "b")
    story.wait(3)
    story.tell(ev.Probed(story.now, "b", True))
    trial = next(s for s in (story.send() for _ in range(40)) if s.replica == "b")
    story.tell(ev.FirstContent(story.now, trial.request))
    for send in old:
        story.fail(send.request, Fault.FIRST_TOKEN)
    assert story.state("b") == "slow_start"


def test_health_does_not_touch_load() -> None:
    """vllm-router#197."""
    story = Story("a", "b", eject=QUICK)
    for _ in range(10):
        story.send()
    before = story.in_flight("b")
    eject(story, "b")
    story.wait(3)
    story.tell(ev.Probed(story.now, "b", True))
    assert story.in_flight("b") == before


def test_drain() -> None:
    story = Story("a", "b")
    sends = [story.send() for _ in range(4)]
    mine = [s.request for s in sends if s.replica == "a"]
    assert story.tell(ev.ReplicaDraining(0.0, "a")) == []
    assert "a" not in spread([story.send() for _ in range(5)])
    assert story.finish(mine[0]) == []
    assert story.tell(ev.Abandoned(0.0, mine[1])) == [Drained("a")]


def test_who_was_to_leave_and_is_found_again_stays_with_its_counts() -> None:
    """A name that vanished from DNS for a moment, an engine that said 503 twice: the source says Found once more."""
    story = Story("a", "b")
    mine = [s.request for s in (story.send(), story.send()) if s.replica == "a"]
    story.tell(ev.ReplicaDraining(0.0, "a"))
    story.up("a")
    assert story.state("a") == "ready" and story.in_flight("a") == len(mine) == 1
    assert "a" in spread([story.send() for _ in range(5)])


def test_drain_of_an_idle_replica_is_done_at_once() -> None:
    assert Story("a", "b").tell(ev.ReplicaDraining(0.0, "a")) == [Drained("a")]


def test_a_new_replica_starts_slowly_and_a_cold_cluster_does_not() -> None:
    """llm-d-router#347: 1 → 2 replicas with 64 in flight."""
    story = Story("a", facts=PoolFacts(max_running=100))
    assert len({story.send().request for _ in range(64)}) == 64, "nobody else could take it: no ramp"
    story.wait(20)
    story.up("b")
    at_once = spread([story.send() for _ in range(20)])
    assert at_once["b"] == 1
    story.wait(1)
    assert spread([story.send() for _ in range(20)])["b"] == 10
    story.wait(10)
    assert story.state("b") == "ready"


def test_replicas_that_come_up_together_are_all_exempt() -> None:
    story = Story("a")
    story.wait(2)
    story.up("b", "c")
    assert spread([story.send() for _ in range(30)]) == {"a": 10, "b": 10, "c": 10}


def test_transition_table_is_closed() -> None:
    assert set(TRANSITIONS.values()) == set(State)
    assert all(before is not after for (before, _), after in TRANSITIONS.items())


def test_back_offs_are_jittered_by_the_given_rng() -> None:
    def pause(seed: int) -> float:
        story = Story("a", "b", "c", "d", seed=seed)
        eject(story, "b")
        return story.dispatcher.fleet.replicas["b"].health.until

    assert pause(1) == pause(1)
    assert len({pause(seed) for seed in range(5)}) == 5
