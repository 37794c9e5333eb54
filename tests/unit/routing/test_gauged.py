"""How far gauges are believed: in full where nobody else sends, less the more of the load is others'."""

from __future__ import annotations

from collections import deque
from random import Random

import pytest

from kilocard.core.load import LoadSample
from kilocard.routing.adaptive import Adaptive
from kilocard.routing.gauged import GaugedPolicy
from kilocard.routing.load import Peers, ReplicaLoad
from kilocard.routing.prefix_affinity import PrefixAffinity
from kilocard.routing.queue_depth import QueueDepth

every = pytest.mark.parametrize("kind", [QueueDepth, Adaptive, PrefixAffinity])


def pool(kind: type[GaugedPolicy], count: int, seed: int = 1) -> tuple[GaugedPolicy, list[ReplicaLoad]]:
    policy = kind(Random(seed))
    loads = [ReplicaLoad(f"r{number}", max_running=64) for number in range(count)]
    for load in loads:
        policy.add(load)
    return policy, loads


def play(policy: GaugedPolicy, loads: list[ReplicaLoad], others: float, *, peers: int = 0) -> None:
    """Two requests of our own stay on each replica; readings show those of others beside them."""
    for turn in range(100):
        for load in loads:
            if turn == 0:
                for _ in range(2):
                    load.begin(100, 100)
            load.scraped(float(turn), LoadSample(float(turn), 2.0 + others + peers, 0.0, 0.0))
            if peers:
                load.shared(float(turn), Peers(peers, 0, 0, 0, 0))
            policy.update(load)
        policy.choose()


@every
@pytest.mark.parametrize(("others", "belief"), [(0.0, 1.0), (2.0, 0.25), (6.0, 0.0625)])
def test_belief_is_the_square_of_our_own_share(kind: type[GaugedPolicy], others: float, belief: float) -> None:
    policy, loads = pool(kind, 3)
    play(policy, loads, others)
    assert policy.belief == pytest.approx(belief)
    assert policy.others == pytest.approx(others / (2.0 + others))


@every
def test_what_peers_tell_of_is_no_strangers_load(kind: type[GaugedPolicy]) -> None:
    policy, loads = pool(kind, 3)
    play(policy, loads, 0.0, peers=6)
    assert policy.belief == 1.0 and policy.others == pytest.approx(0.75)


def test_the_score_is_own_work_and_what_is_believed_of_gauges() -> None:
    policy, [load] = pool(QueueDepth, 1)
    load.begin(256, 512)
    load.scraped(0.0, LoadSample(0.0, 4.0, 2.0, 0.5))
    own, gauged = 1.0 + 1.0 + 1.0, 8.0 * load.waiting + load.foreign + 8.0
    assert load.waiting > 0 and load.foreign == 5.0
    assert policy.score(load) == own + gauged
    policy.belief = 0.25
    assert policy.score(load) == own + 0.25 * gauged


def most_on_a_replica(kind: type[GaugedPolicy], gateways: int, *, believe_all: bool) -> float:
    """Mean over time of the busiest replica's requests. Each gateway sends one request a turn; each lasts 40 turns;
    gauges are read each 20 turns."""
    fleet = [pool(kind, 8) for _ in range(gateways)]
    there = [0] * 8
    ends: deque[tuple[int, int, int]] = deque()
    peaks = []
    for turn in range(400):
        while ends and ends[0][0] == turn:
            _, number, place = ends.popleft()
            there[place] -= 1
            fleet[number][1][place].end(100, 100, pending=False)
            fleet[number][0].update(fleet[number][1][place])
        for number, (policy, loads) in enumerate(fleet):
            if believe_all:
                policy.belief = 1.0
            for place, load in enumerate(loads):
                if (turn + 3 * number + 7 * place) % 20 == 0:
                    load.scraped(turn / 20, LoadSample(turn / 20, float(there[place]), 0.0, 0.0))
                    policy.update(load)
            decision = policy.choose()
            assert decision is not None
            place = int(decision.target[1:])
            there[place] += 1
            loads[place].begin(100, 100)
            loads[place].first_content(100)
            policy.update(loads[place])
            ends.append((turn + 40, number, place))
        peaks.append(max(there))
    return sum(peaks[100:]) / len(peaks[100:])


@every
def test_gateways_that_do_not_see_each_other_do_not_herd(kind: type[GaugedPolicy]) -> None:
    # 16 × 40 requests on 8 replicas: 80 on each would be even
    assert most_on_a_replica(kind, 16, believe_all=False) < 95
    assert most_on_a_replica(kind, 16, believe_all=True) > 105


@pytest.mark.parametrize("kind", [QueueDepth, PrefixAffinity])
def test_gateways_with_little_of_their_own_do_not_all_take_who_looks_idle(kind: type[GaugedPolicy]) -> None:
    """16 gateways read the same gauges. None has a request of its own where it could go, so gauges alone decide."""

    def targets(*, blurred: bool) -> list[str]:
        found = []
        for number in range(16):
            policy, loads = pool(kind, 8, seed=number)
            play(policy, loads, 6.0)
            if not blurred:
                policy.blur = 0.0
            for place, load in enumerate(loads):
                for _ in range(2):
                    load.end(100, 100, pending=True)
                load.scraped(101.0, LoadSample(101.0, 30.0 if place > 3 else 4.0 + place / 4, 0.0, 0.0))
                policy.update(load)
            decision = policy.choose()
            assert decision is not None
            found.append(decision.target)
        return found

    assert set(targets(blurred=False)) == {"r0"}
    spread = targets(blurred=True)
    assert set(spread) == {"r0", "r1", "r2", "r3"}, "those that look busy get nothing"
    assert max(map(spread.count, spread)) <= 9


@every
def test_nothing_is_blurred_for_a_gateway_that_is_alone(kind: type[GaugedPolicy]) -> None:
    policy, loads = pool(kind, 3)
    play(policy, loads, 0.0)
    assert policy.blur == 0.0
