"""Laws that every policy keeps, and what tells them apart."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from kilocard.core.errors import SpecError
from kilocard.core.load import LoadSample
from kilocard.routing.base import Outcome, Policy
from kilocard.routing.load import ReplicaLoad
from kilocard.routing.registry import POLICIES, make_policy

every = pytest.mark.parametrize("name", sorted(POLICIES))
by_load = pytest.mark.parametrize("name", sorted(set(POLICIES) - {"round_robin"}))


def loads(policy: Policy, count: int) -> list[ReplicaLoad]:
    made = [ReplicaLoad(f"r{i}") for i in range(count)]
    for load in made:
        policy.add(load)
    return made


def send(policy: Policy, replicas: list[ReplicaLoad], exclude: tuple[str, ...] = ()) -> str | None:
    decision = policy.choose(exclude)
    if decision is None:
        return None
    load = next(r for r in replicas if r.id == decision.target)
    load.begin(100, 100)
    policy.update(load)
    return decision.target


@every
def test_empty_all_excluded_and_reasons(name: str) -> None:
    policy = make_policy(name, Random(1))
    assert policy.choose() is None and len(policy) == 0
    loads(policy, 2)
    assert policy.choose(("r0", "r1")) is None
    decision = policy.choose(("r0",))
    assert decision is not None and decision.target == "r1"
    assert name in decision.reason


@every
def test_removed_replicas_are_never_chosen_and_removing_twice_is_fine(name: str) -> None:
    policy = make_policy(name, Random(1))
    replicas = loads(policy, 3)
    policy.remove(replicas[0])
    policy.remove(replicas[0])
    policy.forget(replicas[0])
    assert len(policy) == 2
    assert {send(policy, replicas) for _ in range(20)} == {"r1", "r2"}


@every
def test_equal_replicas_get_equal_shares(name: str) -> None:
    policy = make_policy(name, Random(1))
    replicas = loads(policy, 5)
    assert set(Counter(send(policy, replicas) for _ in range(100)).values()) == {20}


@by_load
def test_ties_are_random(name: str) -> None:
    first = Counter()
    rng = Random(9)
    for _ in range(1000):
        policy = make_policy(name, rng)
        first[send(policy, loads(policy, 4))] += 1
    assert min(first.values()) > 200


@by_load
def test_a_handicap_counts(name: str) -> None:
    policy = make_policy(name, Random(1))
    replicas = loads(policy, 2)
    replicas[0].handicap = 10.0
    policy.update(replicas[0])
    assert [send(policy, replicas) for _ in range(5)] == ["r1"] * 5


def test_round_robin_skips_who_is_away_and_keeps_the_turn() -> None:
    policy = make_policy("round_robin", Random(1))
    replicas = loads(policy, 4)
    assert [send(policy, replicas) for _ in range(2)] == ["r0", "r1"]
    policy.remove(replicas[2])
    assert [send(policy, replicas) for _ in range(3)] == ["r3", "r0", "r1"]
    policy.add(replicas[2])
    assert [send(policy, replicas) for _ in range(4)] == ["r3", "r0", "r1", "r2"]


def test_queue_depth_prefers_no_queue_over_few_connections() -> None:
    policy = make_policy("queue_depth", Random(1))
    queueing, busy = ReplicaLoad("queueing", max_running=2), ReplicaLoad("busy")
    for load, count in ((queueing, 4), (busy, 10)):
        for _ in range(count):
            load.begin(10, 10)
        policy.add(load)
    decision = policy.choose()
    assert decision is not None and decision.target == "busy"


def test_queue_depth_sees_memory() -> None:
    policy = make_policy("queue_depth", Random(1))
    replicas = loads(policy, 2)
    replicas[0].scraped(0.0, LoadSample(0.0, 0, 0, 0.9))
    replicas[1].scraped(0.0, LoadSample(0.0, 0, 0, 0.2))
    for replica in replicas:
        policy.update(replica)
    assert [send(policy, replicas) for _ in range(5)] == ["r1"] * 5


def seen(policy: Policy, load: ReplicaLoad, now: float, first: float, prompt: int = 500) -> None:
    policy.observe(load, Outcome(now, prompt, first, None, None, False))
    policy.observe(load, Outcome(now, prompt, None, first, 100, False))


def shares(policy: Policy, replicas: list[ReplicaLoad], count: int) -> Counter[str | None]:
    for replica in replicas:
        policy.update(replica)
    return Counter(send(policy, replicas) for _ in range(count))


def test_adaptive_gives_a_slow_replica_less() -> None:
    policy = make_policy("adaptive", Random(1))
    replicas = loads(policy, 3)
    for n in range(200):
        for replica in replicas:
            seen(policy, replica, n * 0.1, 0.6 if replica.id == "r0" else 0.2)
    counts = shares(policy, replicas, 140)
    assert counts["r0"] == pytest.approx(20, abs=4)


def test_adaptive_does_not_blame_long_prompts() -> None:
    """The same machine with 10× longer prompts is not slower."""
    policy = make_policy("adaptive", Random(1))
    replicas = loads(policy, 2)
    for n in range(200):
        seen(policy, replicas[0], n * 0.1, 0.1, prompt=500)
        policy.observe(replicas[1], Outcome(n * 0.1, 5000, 1.0, None, None, False))
    counts = shares(policy, replicas, 100)
    assert counts["r0"] == pytest.approx(50, abs=8)


def test_adaptive_takes_a_fast_500_for_worse_and_forgives() -> None:
    """linkerd2#11669: failing in 1 ms must not look fast."""
    policy = make_policy("adaptive", Random(1))
    replicas = loads(policy, 2)
    for n in range(20):
        for replica in replicas:
            seen(policy, replica, n * 0.1, 0.2)
    for _ in range(5):
        policy.observe(replicas[0], Outcome(2.0, 500, None, None, None, True))
    assert shares(policy, replicas, 12)["r0"] <= 2
    for replica in replicas:
        for _ in range(replica.in_flight):
            replica.end(100, 100, True)
    seen(policy, replicas[1], 90.0, 0.2)
    assert shares(policy, replicas, 12)["r0"] >= 5


def test_unknown_names_list_the_known() -> None:
    with pytest.raises(SpecError, match="least_connections"):
        make_policy("fastest", Random(1))
