"""Readings of several gateways as one, and what the backend lists beside them."""

from __future__ import annotations

from dataclasses import replace

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from kilocard.core.reading import GatewayReading, observed, together
from kilocard.core.signals import Phase, PoolSignals, ReplicaSignals

COUNTS = st.integers(0, 1000)


@st.composite
def readings(draw: st.DrawFn, name: str) -> GatewayReading:
    pools = [
        PoolSignals(pool, (name,), arrived=draw(COUNTS), held=draw(COUNTS), in_flight=draw(COUNTS))
        for pool in ("p", "q")
        if draw(st.booleans())
    ]
    ages = st.none() | st.floats(0, 10)
    replicas = [
        ReplicaSignals(id, "p", draw(st.sampled_from(Phase)), age_s=draw(ages), in_flight=draw(COUNTS))
        for id in ("p-0", "p-1")
        if draw(st.booleans())
    ]
    return GatewayReading(tuple(pools), tuple(replicas))


@given(readings("a"), readings("b"), readings("c"))
def test_it_does_not_matter_who_adds_up_first(a: GatewayReading, b: GatewayReading, c: GatewayReading) -> None:
    """Workers are added up by their supervisor, gateways by the controller."""
    once, twice = together([a, b, c]), together([together([a, b]), c])
    assert once.pools == twice.pools
    assert [(each.id, each.in_flight) for each in once.replicas] == [
        (each.id, each.in_flight) for each in twice.replicas
    ]
    assert sum(pool.arrived for pool in once.pools) == sum(pool.arrived for each in (a, b, c) for pool in each.pools)


@given(readings("a"))
def test_a_reading_survives_the_wire(reading: GatewayReading) -> None:
    assert msgspec.json.decode(msgspec.json.encode(reading), type=GatewayReading) == reading


def test_the_freshest_gauges_count_and_requests_are_summed() -> None:
    old = ReplicaSignals("p-0", "p", Phase.READY, waiting=9, age_s=4.0, in_flight=2)
    new = ReplicaSignals("p-0", "p", Phase.FAILING, waiting=1, age_s=0.5, in_flight=3)
    [both] = together([GatewayReading((), (old,)), GatewayReading((), (new,))]).replicas
    assert (both.waiting, both.age_s, both.in_flight) == (1, 0.5, 5)
    assert both.phase is Phase.READY  # one of the gateways is served by it


def test_who_drains_for_one_gateway_drains() -> None:
    ready = ReplicaSignals("p-0", "p", Phase.READY)
    [both] = together(
        [GatewayReading((), (ready,)), GatewayReading((), (replace(ready, phase=Phase.DRAINING),))]
    ).replicas
    assert both.phase is Phase.DRAINING


def test_as_01_a_replica_that_the_backend_does_not_list_is_not_there() -> None:
    """llm-d-autoscaling#385: series of deleted pods are still around."""
    gone = ReplicaSignals("p-9", "p", Phase.READY, waiting=50, age_s=1.0)
    there = ReplicaSignals("p-0", "p", Phase.READY, waiting=2, age_s=1.0, in_flight=4)
    listed = [ReplicaSignals("p-0", "p", Phase.READY, since_s=99.0), ReplicaSignals("p-1", "p", Phase.LOADING)]
    cluster = observed(5.0, GatewayReading((), (gone, there)), listed)
    assert [(each.id, each.phase, each.waiting, each.in_flight) for each in cluster.replicas] == [
        ("p-0", Phase.READY, 2, 4),
        ("p-1", Phase.LOADING, None, 0),
    ]
    assert cluster.replicas[0].since_s == 99.0  # its age is the backend's to know


def test_a_ready_replica_that_gateways_have_ejected_is_failing() -> None:
    seen = GatewayReading((), (ReplicaSignals("p-0", "p", Phase.FAILING),))
    [replica] = observed(0.0, seen, [ReplicaSignals("p-0", "p", Phase.READY)]).replicas
    assert replica.phase is Phase.FAILING


def test_an_old_reading_is_older_in_all_that_has_an_age() -> None:
    reading = GatewayReading(
        (PoolSignals("p", ("a",)),),
        (ReplicaSignals("p-0", "p", Phase.READY, age_s=1.0), ReplicaSignals("p-1", "p", Phase.READY)),
    )
    older = reading.older(3.0)
    assert older.pools[0].age_s == 3.0
    assert [replica.age_s for replica in older.replicas] == [4.0, None]
