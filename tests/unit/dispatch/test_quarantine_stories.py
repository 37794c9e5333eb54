"""Poison requests on virtual time. 38 in docs/faults-of-others.md: how many replicas does one body kill?"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from fleet_story import Story
from mortal_fleet import Client, MortalFleet, fingerprint

from kilocard.core.errors import PoisonRequest
from kilocard.dispatch import events as ev
from kilocard.dispatch.docket import CONVICTIONS, MARKS
from kilocard.dispatch.events import Fault
from kilocard.dispatch.instructions import Convicted, Hold, Probe, Refuse, Send
from kilocard.dispatch.quarantine import ACQUITTED, EXIT, LULL, VERDICT
from kilocard.dispatch.record import from_list, to_list
from kilocard.spec.model import QuarantineSpec, RetrySpec

POISON = fingerprint("poison")
#: each is another order of arrivals, places and deaths
SEEDS = range(5)


def crowd(fleet: MortalFleet, size: int = 40) -> None:
    """So many innocent clients, each with one request under way at any time."""
    for _ in range(size):
        fleet.after(fleet.rng.uniform(0.0, 0.5), partial(fleet.send, Client()))
    fleet.run(1.0)


@pytest.mark.parametrize("seed", SEEDS)
def test_38_one_poison_in_a_fleet_of_8_kills_two_and_no_innocent_is_lost(seed: int) -> None:
    fleet = MortalFleet(8, seed)
    crowd(fleet)
    poison = Client("poison")
    fleet.send(poison)
    fleet.run(4.0)
    assert len(fleet.deaths) == 2
    assert fleet.convicted == [POISON]
    assert poison.answers and all(isinstance(error, PoisonRequest) for error in poison.answers)
    assert not fleet.lost, "only streams that had begun were broken"
    assert sum(fleet.broken.values()) <= 2 * 40 / 6


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("health_lies", "deaths"), [(False, 2), (True, 3)])
def test_38_an_engine_that_says_500_and_exits_a_moment_later_has_died_too(
    seed: int, health_lies: bool, deaths: int
) -> None:
    """vLLM after EngineDeadError: its health page says so. Where it does not, nobody knows for a second."""
    fleet = MortalFleet(8, seed, exits_late=0.6, health_lies=health_lies)
    crowd(fleet)
    fleet.send(Client("poison"))
    fleet.run(5.0)
    assert len(fleet.deaths) <= deaths
    assert fleet.convicted == [POISON]
    assert not fleet.lost


@pytest.mark.parametrize("seed", SEEDS)
def test_38_death_in_the_middle_of_its_stream_counts_too(seed: int) -> None:
    """There is no retry then: it is the client that sends it again."""
    fleet = MortalFleet(8, seed, mid_stream=True)
    crowd(fleet)
    poison = Client("poison")
    fleet.send(poison)
    fleet.run(4.0)
    assert len(fleet.deaths) == 2
    assert fleet.convicted == [POISON]
    assert [error.code for error in poison.answers[:3] if error] == ["reset", "reset", "poison_request"]
    assert not fleet.lost


@pytest.mark.parametrize("seed", SEEDS)
def test_38_an_only_replica_that_restarts_is_killed_twice_and_nobody_else_is_lost(seed: int) -> None:
    fleet = MortalFleet(1, seed, restart=3.0)
    crowd(fleet, 5)
    poison = Client("poison")
    fleet.send(poison)
    fleet.run(20.0)
    assert len(fleet.deaths) == 2
    assert fleet.convicted == [POISON]
    assert {error.code for error in poison.answers if error} == {"poison_request"}
    assert not fleet.lost


@pytest.mark.parametrize("seed", SEEDS)
def test_replicas_that_just_die_convict_nobody_and_lose_nobody(seed: int) -> None:
    fleet = MortalFleet(8, seed, restart=2.0)
    crowd(fleet)
    for number in (0, 3, 5):
        fleet.kill(f"r{number}")
        fleet.run(4.0)
    assert fleet.convicted == []
    assert not fleet.lost


@pytest.mark.parametrize("seed", SEEDS)
def test_one_body_that_everybody_sends_is_not_convicted_by_deaths_at_one_moment(seed: int) -> None:
    """A benchmark's only prompt is on every replica; three die at once."""
    fleet = MortalFleet(8, seed, restart=5.0)
    clients = [Client("hello") for _ in range(40)]
    for client in clients:
        fleet.send(client)
    fleet.run(1.05)
    for number in range(3):
        fleet.kill(f"r{number}")
    fleet.run(5.0)
    assert fleet.convicted == []
    assert sum(len(client.answers) for client in clients) > 200, "it is let go again"


# --- each rule by itself


def fail(story: Story, request: int, body: str, fault: Fault = Fault.RESET) -> list[object]:
    status = 500 if fault is Fault.STATUS else None
    return list(story.tell(ev.Failed(story.now, request, fault, status, "", fingerprint(body))))


def arrive(story: Story, body: str) -> object:
    story.count += 1
    (answer,) = story.tell(ev.Arrived(story.now, story.count, "m", 10, 10, 1e6, fingerprint=fingerprint(body)))
    return answer


def die(story: Story, request: int, body: str, replica: str) -> object:
    """The replica dies of it; what becomes of the request."""
    first, *rest = fail(story, request, body)
    if rest:
        assert rest == [Probe(replica, liveness=True)]
        story.tell(ev.Probed(story.now, replica, False))
    return first


def convict(story: Story) -> int:
    """A body dies twice; the request that it was."""
    sent = story.send()
    again = die(story, sent.request, "poison", sent.replica)
    assert isinstance(again, Send)
    assert isinstance(die(story, again.request, "poison", again.replica), Hold)
    (refusal,) = story.wait(0.1)
    assert isinstance(refusal, Refuse) and refusal.error.code == "poison_request"
    return sent.request


def test_two_deaths_and_it_is_refused_until_the_ttl_is_over_for_everybody() -> None:
    story = Story("a", "b", "c", quarantine=QuarantineSpec(2, ttl=60.0))
    request = convict(story)
    (said,) = [heard for heard in story.heard if isinstance(heard, Convicted)]
    assert said.request == request and said.fingerprint == POISON and said.model == "m" and len(said.replicas) == 2
    story.wait(50.0)
    refusal = arrive(story, "poison")
    assert isinstance(refusal, Refuse) and refusal.error.http_status == 422
    assert refusal.error.retry_after == pytest.approx(9.9, abs=0.2)
    assert "2 replicas of model m died" in str(refusal.error) and "the next 10 s" in str(refusal.error)
    story.wait(11.0)
    assert isinstance(arrive(story, "poison"), Send)
    assert not story.dispatcher.quarantine.sizes, "forgotten, and nothing is looked for any more"
    assert story.dispatcher.stats.deaths == {"p": 2} and story.dispatcher.stats.convictions == 1


def test_a_conviction_frees_whoever_else_was_there() -> None:
    """The deaths are explained."""
    story = Story("a", "b", "c")
    crowd = [story.send() for _ in range(6)]
    poison = crowd[0]
    there = [send for send in crowd[1:] if send.replica == poison.replica]
    assert there
    for send in there:
        fail(story, send.request, f"body{send.request}")
    again = die(story, poison.request, "poison", poison.replica)
    story.tell(ev.Probed(story.now, poison.replica, False))
    quarantine = story.dispatcher.quarantine
    assert quarantine.marks.keys() == {POISON, *(fingerprint(f"body{send.request}") for send in there)}
    if isinstance(again, Hold):  # the others were retried first, and keep it away
        for send in there:
            story.tell(ev.Abandoned(story.now, send.request))
        (again,) = [said for said in story.wait(0.2) if isinstance(said, Send) and said.request == poison.request]
    assert isinstance(again, Send)
    die(story, again.request, "poison", again.replica)
    assert quarantine.convicted.keys() == {POISON} and not quarantine.marks


def test_a_sign_of_life_takes_the_mark_back() -> None:
    story = Story("a", "b")
    sent = story.send()
    _, probe = fail(story, sent.request, "x")
    assert probe == Probe(sent.replica, liveness=True)
    assert story.dispatcher.quarantine.sizes
    story.tell(ev.Probed(story.now, sent.replica, True))
    assert not story.dispatcher.quarantine.sizes and not story.dispatcher.quarantine.incidents
    assert story.dispatcher.stats.deaths == {}


def test_silence_is_death_where_a_connection_was_lost_and_none_where_it_answered_500() -> None:
    story = Story("a", "b", "c", "d")
    lost, error = story.send(), story.send()
    fail(story, lost.request, "x")
    fail(story, error.request, "y", Fault.STATUS)
    story.wait(VERDICT + 0.2)
    assert sum(story.dispatcher.stats.deaths.values()) == 1
    story.wait(EXIT)
    assert sum(story.dispatcher.stats.deaths.values()) == 1
    assert fingerprint("y") not in story.dispatcher.quarantine.marks


def test_a_body_that_gets_500_everywhere_is_not_poison() -> None:
    """Its third attempt comes when it is clear that the engines live: here nobody else proves it."""
    story = Story("a", "b", "c", "d", retry=RetrySpec(4))
    answer: object = story.send()
    for _ in range(4):
        assert isinstance(answer, Send)
        first, *probes = fail(story, answer.request, "bad", Fault.STATUS)
        for probe in probes:
            assert isinstance(probe, Probe)
            story.tell(ev.Probed(story.now, probe.replica, True))
        later = [first] if not isinstance(first, Hold) else story.wait(LULL + 0.2)
        (answer,) = (said for said in later if not isinstance(said, Probe))
    assert isinstance(answer, Refuse) and answer.error.code == "status"
    story.wait(EXIT + 0.1)
    assert not story.dispatcher.quarantine.sizes


def test_a_third_replica_is_not_risked_while_the_second_may_be_dead() -> None:
    story = Story("a", "b", "c")
    sent = story.send()
    again = die(story, sent.request, "x", sent.replica)
    assert isinstance(again, Send)
    held, probe = fail(story, again.request, "x")
    assert isinstance(held, Hold) and story.wait(1.0) == []
    assert isinstance(probe, Probe)
    story.tell(ev.Probed(story.now, probe.replica, True))  # it lives: only the first has died
    (third,) = story.wait(0.1)
    assert isinstance(third, Send) and third.replica not in {sent.replica, again.replica}


def test_suspects_are_kept_apart_until_their_first_content() -> None:
    story = Story("a", "b", "c")
    for _ in range(3):
        story.finish(story.send().request)
    crowd = [story.send() for _ in range(9)]
    on_a = [send for send in crowd if send.replica == "a"]
    assert len(on_a) == 3
    answers = [die(story, send.request, f"body{send.request}", "a") for send in on_a]
    assert {answer.replica for answer in answers if isinstance(answer, Send)} == {"b", "c"}
    (held,) = [answer for answer in answers if isinstance(answer, Hold)]
    assert story.wait(0.3) == []
    first = next(answer for answer in answers if isinstance(answer, Send))
    story.tell(ev.FirstContent(story.now, first.request))
    (sent,) = story.wait(0.1)
    assert isinstance(sent, Send) and sent.request == held.request and sent.replica == first.replica


def test_copies_of_a_marked_body_run_one_at_a_time() -> None:
    story = Story("a", "b", "c", "d")
    sent = story.send()
    again = die(story, sent.request, "x", sent.replica)
    assert isinstance(again, Send)
    assert isinstance(arrive(story, "x"), Hold)
    assert isinstance(arrive(story, "y"), Send), "others do not wait"
    story.wait(0.3)
    story.tell(ev.FirstContent(story.now, again.request))
    assert any(isinstance(said, Send) for said in story.wait(0.1))


def test_a_death_that_can_not_be_told_apart_convicts_nobody_and_leaves_marks() -> None:
    """Both were there twice: they waited so long that they went together."""
    story = Story("a", "b", "c", "d", "e")
    quarantine = story.dispatcher.quarantine
    replica = story.dispatcher.fleet.replicas["a"]
    requests = []
    for body in ("x", "y"):
        send = story.send()
        request = story.dispatcher._requests[send.request]
        requests.append((request, body))
    for life in range(2):
        for request, body in requests:
            quarantine.failed(float(life), request, replica, Fault.RESET, fingerprint(body))
            request.sent_at = life + 0.5
        quarantine.died(life + 0.1, "a")
        quarantine.incidents.clear()
    assert [quarantine.marks[fingerprint(body)].strikes for body in "xy"] == [2, 2]
    assert not quarantine.convicted


def test_an_outage_nearby_asks_for_one_more_death() -> None:
    story = Story(*"abcdef")
    others = [story.send() for _ in range(6)]
    target = others[0]
    die(story, others[1].request, "other", others[1].replica)  # a death in which x had no part
    again = die(story, target.request, "x", target.replica)
    assert isinstance(again, Send)
    die(story, again.request, "x", again.replica)
    assert not story.dispatcher.quarantine.convicted
    (third,) = [said for said in story.wait(0.2) if isinstance(said, Send) and said.request == target.request]
    die(story, third.request, "x", third.replica)
    assert story.dispatcher.quarantine.convicted.keys() == {fingerprint("x")}


def test_an_acquitted_body_takes_one_death_more_for_a_while() -> None:
    story = Story(*"abcd")
    sent = story.send()
    again = die(story, sent.request, "x", sent.replica)
    assert isinstance(again, Send)
    story.wait(0.3)
    story.finish(again.request)
    mark = story.dispatcher.quarantine.marks[fingerprint("x")]
    assert mark.acquitted and not mark.suspect
    story.wait(ACQUITTED + 2.0)
    assert not story.dispatcher.quarantine.marks


def test_a_planned_stop_is_no_death() -> None:
    story = Story("a", "b")
    sent = story.send()
    story.tell(ev.ReplicaDraining(story.now, sent.replica))
    fail(story, sent.request, "x")
    story.tell(ev.ReplicaGone(story.now, sent.replica))
    assert story.dispatcher.stats.deaths == {} and not story.dispatcher.quarantine.sizes


def test_gone_without_notice_is_a_death_whichever_is_heard_first() -> None:
    for gone_first in (False, True):
        story = Story("a", "b")
        sent = story.send()
        if gone_first:
            story.tell(ev.ReplicaGone(story.now, sent.replica))
        fail(story, sent.request, "x")
        if not gone_first:
            story.tell(ev.ReplicaGone(story.now, sent.replica))
        assert story.dispatcher.stats.deaths == {"p": 1}, gone_first


def test_off_where_deaths_is_0() -> None:
    story = Story("a", "b", quarantine=QuarantineSpec(0))
    sent = story.send()
    assert [type(answer) for answer in fail(story, sent.request, "x")] == [Send]
    assert not story.dispatcher.quarantine.incidents


def test_memory_is_bounded() -> None:
    """INV-11."""
    story = Story("a", "b", quarantine=replace(QuarantineSpec(), deaths=1))
    quarantine = story.dispatcher.quarantine
    for number in range(CONVICTIONS + 50):
        story.up("a", "b")
        sent = story.send()
        fail(story, sent.request, f"{number:06}")
        story.tell(ev.ReplicaGone(story.now, sent.replica))
        story.tell(ev.Abandoned(story.now, sent.request))
        story.now += 20.0 * 0
    assert len(quarantine.convicted) + len(quarantine.marks) > 0
    assert len(quarantine.convicted) <= CONVICTIONS and len(quarantine.marks) <= MARKS
    assert sum(quarantine.sizes.values()) == len(quarantine.convicted) + len(quarantine.marks)


def test_events_with_fingerprints_are_recorded() -> None:
    failed = ev.Failed(1.0, 2, Fault.RESET, None, "why", POISON)
    arrived = ev.Arrived(1.0, 2, "m", 1, 1, 9.0, fingerprint=POISON)
    assert from_list(to_list(failed)) == failed and from_list(to_list(arrived)) == arrived
