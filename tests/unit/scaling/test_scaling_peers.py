"""The study's models of others do what their documentation says."""

from __future__ import annotations

import pytest
from benchmarks.scaling_study.peers import Hpa, Keda

from kilocard.core.signals import Phase, PoolSignals, ReplicaSignals
from kilocard.scaling.limits import Limits


def wanted(peer: Hpa, now: float, ready: int, waiting: float, coming: int = 0, held: float = 0.0) -> int:
    replicas = [ReplicaSignals(f"p-{n}", "p", Phase.READY, waiting=waiting) for n in range(ready)]
    replicas += [ReplicaSignals(f"p-c{n}", "p", Phase.LOADING) for n in range(coming)]
    return peer.decide(now, PoolSignals("p", held=held), replicas, Limits()).wanted


@pytest.mark.parametrize(("waiting", "pods"), [(10.0, 4), (10.9, 4), (11.1, 5), (15.0, 6), (20.0, 8), (90.0, 8)])
def test_the_hpas_formula_its_tolerance_and_its_policies(waiting: float, pods: int) -> None:
    """ceil(4 × average / 10); nothing within 10 %; within 15 s at most 100 % or 4 pods more."""
    assert wanted(Hpa(10.0, 1, 20), 0.0, 4, waiting) == pods


def test_pods_that_are_not_ready_count_as_0_on_the_way_up() -> None:
    assert wanted(Hpa(10.0, 1, 20), 0.0, 2, 20.0, coming=2) == 4
    assert wanted(Hpa(10.0, 1, 20), 0.0, 2, 40.0, coming=2) == 8


def test_the_highest_of_300_s_on_the_way_down_and_a_look_every_15_s() -> None:
    hpa = Hpa(10.0, 1, 20)
    assert wanted(hpa, 0.0, 6, 10.0) == 6
    found = [wanted(hpa, float(now), 6, 2.0) for now in range(1, 400)]
    assert found.index(2) + 1 == 300
    assert set(found[:299]) == {6}


def test_keda_polls_every_30_s_and_divides_the_total() -> None:
    keda = Keda(10.0, 1, 20)
    assert wanted(keda, 0.0, 2, 10.0, held=15.0) == 4
    assert wanted(keda, 15.0, 4, 50.0) == 4
    assert wanted(keda, 30.0, 4, 20.0) == 8
