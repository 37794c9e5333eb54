"""A replica's place on a Ray cluster, event by event."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kilocard.backends.base import ReplicaState as S
from kilocard.backends.ray.berth import (
    STOP_SECONDS,
    Adopted,
    Announce,
    Begin,
    Berth,
    End,
    Event,
    Heard,
    HostGone,
    Placed,
    Release,
    Reserve,
    StartHost,
    TellHost,
    Tick,
    Waits,
)
from kilocard.core.replica import Change, Endpoint, Found, Leaving, Lost
from kilocard.spec.model import StartSpec

FOUND = Found(Endpoint("p-0", "p", "http://10.0.0.7:21000"))
QUICK = StartSpec(backoff=1, backoff_max=30, crash_loop=3)


def berth() -> Berth:
    return Berth("p-0", QUICK, 0.0)


def ready() -> Berth:
    one = berth()
    assert one.on(Begin(0.0)) == [Reserve()]
    assert one.on(Placed(1.0)) == [StartHost()]
    assert one.on(Heard(2.0, S.LOADING)) == []
    assert one.on(Heard(3.0, S.READY, (FOUND,))) == [Announce(FOUND)]
    return one


def test_it_waits_for_room_without_an_end_and_says_why() -> None:
    one = berth()
    one.on(Begin(0.0))
    one.on(Waits(5.0, "waits for 8 free GPUs"))
    assert (one.state, one.reason, one.since) == (S.PENDING, "waits for 8 free GPUs", 0.0)
    assert one.deadline is None, "late is no fault of a replica that has no place"


def test_a_host_that_is_gone_is_told_and_tried_elsewhere_after_the_back_off() -> None:
    one = ready()
    assert one.on(HostGone(10.0, "its node has died")) == [Release(), Announce(Lost("p-0", "its node has died"))]
    assert (one.state, one.deadline) == (S.RESTARTING, 11.0)
    assert one.on(Tick(10.5)) == []
    assert one.on(Tick(11.0)) == [Reserve()]
    assert one.moves == 1
    assert one.reason == "last time: its node has died"


def test_hosts_that_never_serve_are_a_crash_loop() -> None:
    one = berth()
    one.on(Begin(0.0))
    waits = []
    for now in (10.0, 20.0, 30.0):
        assert one.on(HostGone(now, "no kilocard there")) == [Release()], "nobody was told of it"
        assert one.deadline is not None
        waits.append(one.deadline - now)
        one.on(Tick(one.deadline))
    assert waits == [1, 2, 30]


def test_a_drain_is_the_hosts_business() -> None:
    one = ready()
    assert one.on(End(5.0, "scaled down", True)) == [TellHost("scaled down", True)]
    assert one.on(End(5.0, "scaled down", True)) == []
    leaving, lost = Leaving("p-0", "scaled down"), Lost("p-0", "scaled down")
    assert one.on(Heard(5.1, S.DRAINING, (leaving,))) == [Announce(leaving)]
    assert one.on(Heard(9.0, S.STOPPED, (lost,))) == [Announce(lost), Release()]
    assert (one.state, one.reason) == (S.STOPPED, "scaled down")


def test_a_host_that_does_not_stop_loses_its_place() -> None:
    one = ready()
    one.on(End(5.0, "no time", False))
    assert one.deadline == 5.0 + STOP_SECONDS
    [release, lost] = one.on(Tick(5.0 + STOP_SECONDS))
    assert release == Release()
    assert lost == Announce(Lost("p-0", "no time; its host did not answer"))


def test_a_stop_overtakes_a_drain_but_not_the_other_way_round() -> None:
    one = ready()
    one.on(End(5.0, "scaled down", True))
    assert one.on(End(6.0, "no time", False)) == [TellHost("no time", False)]
    assert one.on(End(7.0, "scaled down", True)) == []


def test_without_a_host_an_end_is_an_end() -> None:
    one = berth()
    one.on(Begin(0.0))
    assert one.on(End(1.0, "scaled down", True)) == [Release()]
    assert one.state is S.STOPPED
    assert one.on(Placed(2.0)) == []
    waiting = ready()
    waiting.on(HostGone(5.0, "gone"))
    assert waiting.on(End(5.5, "scaled down", True)) == []
    assert (waiting.state, waiting.deadline) == (S.STOPPED, None)


def test_a_node_that_dies_while_its_replica_drains_ends_the_drain() -> None:
    one = ready()
    one.on(End(5.0, "scaled down", True))
    one.on(Heard(5.1, S.DRAINING, (Leaving("p-0", "scaled down"),)))
    [release, lost] = one.on(HostGone(6.0, "its node has died"))
    assert release == Release()
    assert lost == Announce(Lost("p-0", "scaled down; meanwhile: its node has died"))
    assert one.state is S.STOPPED


def test_what_was_adopted_is_announced_as_it_stands() -> None:
    one = berth()
    assert one.on(Adopted(0.0)) == []
    leaving = Leaving("p-0", "scaled down")
    assert one.on(Heard(0.1, S.DRAINING, (FOUND, leaving))) == [Announce(FOUND), Announce(leaving)]
    assert one.moves == 0


def event(name: str, now: float) -> Event:
    """What the host tells is what a host can tell: its news fit its state."""
    lost = Lost("p-0", "r")
    told: dict[str, tuple[S, Sequence[Change]]] = {
        "loading": (S.LOADING, ()),
        "ready": (S.READY, (FOUND,)),
        "leaving": (S.DRAINING, (Leaving("p-0", "r"),)),
        "crash": (S.RESTARTING, (lost,)),
        "stopped": (S.STOPPED, (lost,)),
    }
    if name in told:
        return Heard(now, *told[name])
    events: dict[str, Event] = {
        "begin": Begin(now),
        "waits": Waits(now, "w"),
        "placed": Placed(now),
        "gone": HostGone(now, "g"),
        "drain": End(now, "d", True),
        "stop": End(now, "s", False),
        "tick": Tick(now),
    }
    return events[name]


NAMES = ["begin", "waits", "placed", "loading", "ready", "leaving", "crash", "stopped", "gone", "drain", "stop", "tick"]


@given(st.lists(st.sampled_from(NAMES), max_size=40))
def test_whatever_happens_places_are_given_back_and_every_found_has_its_lost(names: list[str]) -> None:
    one, now, places = berth(), 0.0, 0
    told: list[type[Change]] = [Lost]
    for name in [*names, "stop", "tick"]:
        now = max(now + 1.0, (one.deadline or 0.0) if name == "tick" else 0.0)
        for instruction in one.on(event(name, now)):
            if isinstance(instruction, Reserve):
                places += 1
            elif isinstance(instruction, Release):
                places -= 1
            elif isinstance(instruction, Announce):
                told.append(type(instruction.change))
        assert places in (0, 1), "never two places at once"
        assert places or not one.hosted
    assert one.state is S.STOPPED
    assert places == 0
    assert told[-1] is Lost
    for before, after in pairwise(told):
        assert after is Found or before is not after
        assert (before, after) != (Lost, Leaving)
