"""What a worker makes of what its peers tell it."""

from __future__ import annotations

from fleet_story import Story

from kilocard.dispatch import events as ev
from kilocard.dispatch.config import PoolFacts
from kilocard.dispatch.instructions import Hold, Refuse, Send
from kilocard.spec.model import EjectSpec, HoldSpec


def peers(story: Story, replica: str, in_flight: int, share: int | None = None, pending: int = 0) -> list[object]:
    return list(story.tell(ev.PeerLoad(story.now, replica, in_flight, pending, 0, 0, 0, share)))


def test_a_replica_that_peers_keep_busy_is_left_alone() -> None:
    story = Story("a", "b")
    peers(story, "a", 8)
    assert [story.send().replica for _ in range(6)] == ["b"] * 6


def test_what_the_gauges_show_of_peers_is_not_counted_twice() -> None:
    story = Story("a")
    peers(story, "a", 6)
    story.scrape("a", 6, 0)
    replica = story.dispatcher.fleet.replicas["a"]
    assert (replica.load, replica.foreign) == (6, 6)
    story.scrape("a", 9, 0)  # three more, which no worker of ours sent
    assert replica.load == 9
    peers(story, "a", 2)  # four of our peers' have ended since
    assert replica.load == 5


def test_a_reading_that_came_before_the_news_is_not_foreign() -> None:
    """The engine had counted requests of peers which we had not heard of yet."""
    story = Story("a")
    story.scrape("a", 10, 0)
    story.now += 0.03
    peers(story, "a", 10)
    assert story.dispatcher.fleet.replicas["a"].load == 10


def test_peers_that_are_gone_leave_nothing() -> None:
    story = Story("a")
    story.tell(ev.PeerLoad(0.0, "a", 6, 2, 500, 600, 700))
    story.tell(ev.PeerLoad(0.0, "a", 0, 0, 0, 0, 0))
    replica = story.dispatcher.fleet.replicas["a"]
    assert (replica.load, replica.prefill, replica.decode, replica.context, replica.waiting) == (0, 0, 0, 0, 0)


def test_peers_requests_make_a_replica_hot() -> None:
    story = Story("a", facts=PoolFacts(max_running=4))
    peers(story, "a", 8, pending=4)
    assert story.state("a") == "overheated"
    assert isinstance(story.arrive(), Hold)
    assert [type(answer) for answer in peers(story, "a", 4)] == [Send]


def test_nothing_is_sent_before_the_share_of_a_bound_is_known() -> None:
    story = Story("a", facts=PoolFacts(max_in_flight=4, shared=True), hold=HoldSpec(max=9))
    assert isinstance(story.arrive(), Hold)
    assert [type(answer) for answer in peers(story, "a", 0, share=2)] == [Send]
    assert [type(story.arrive()) for _ in range(2)] == [Send, Hold]
    assert peers(story, "a", 0, share=1) == []
    assert list(story.finish(1)) == []  # one too many ran: this one is not replaced
    assert len(story.finish(2)) == 1


def test_slow_start_holds_for_all_workers_together() -> None:
    story = Story("a", facts=PoolFacts(max_running=11), slow_start=10.0)
    story.wait(20.0)
    story.up("b")
    story.wait(5.0)  # half way: 6 requests
    peers(story, "b", 4)
    for _ in range(9):
        story.send()
    assert story.in_flight("b") == 2


def test_an_ejection_by_a_peer_counts_here_too() -> None:
    story = Story("a", "b", "c")
    story.tell(ev.PeerEjected(0.0, "a", "connect: connect"))
    assert story.state("a") == "ejected"
    assert {story.send().replica for _ in range(6)} == {"b", "c"}


def test_but_not_below_the_floor() -> None:
    story = Story("a", "b", eject=EjectSpec(max_share=0.5))
    story.tell(ev.PeerEjected(0.0, "a", "consecutive: reset"))
    story.tell(ev.PeerEjected(0.0, "b", "consecutive: reset"))
    assert (story.state("a"), story.state("b")) == ("ejected", "ready")


def test_a_body_that_a_peer_has_convicted_is_refused_here_until_its_time_is_over() -> None:
    story = Story("a", "b")
    body = "5-00ff"
    story.tell(ev.PeerConvicted(0.0, body, "m", ("x", "y"), 60.0))
    story.tell(ev.PeerConvicted(0.0, body, "m", ("x", "y"), 60.0))
    assert dict(story.dispatcher.quarantine.sizes) == {5: 1}

    def arrives(number: int) -> object:
        (answer,) = story.tell(ev.Arrived(story.now, number, "m", 10, 10, 1e6, fingerprint=body))
        return answer

    refused = arrives(1)
    assert isinstance(refused, Refuse)
    story.wait(61.0)
    assert isinstance(arrives(2), Send)
    assert not story.dispatcher.quarantine.sizes
