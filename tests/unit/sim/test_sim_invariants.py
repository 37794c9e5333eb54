"""docs/invariants.md, the simulator's: each number is in a test's docstring."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from small_cluster import FAST, arrivals, played, scenario

from kilocard.core.load import LoadSample
from kilocard.dispatch.events import Arrived, Event, Finished, Scraped
from kilocard.dispatch.record import answer_list, to_list
from kilocard.routing.registry import POLICIES
from kilocard.sim.asking import Asking
from kilocard.sim.cluster import Cluster
from kilocard.sim.collector import NOT_ASKED, UNFINISHED
from kilocard.sim.engine import Engine
from kilocard.sim.prefix_pool import PrefixPool
from kilocard.sim.scenario import Scenario, Signals
from kilocard.sim.server import Server
from kilocard.spec.model import AffinitySpec, HedgeSpec, ModelSpec, Timeouts
from kilocard.workload.request import WorkloadRequest

SLOW = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
IMPATIENT = Timeouts(first_token=3.0, first_token_per_prompt_token=0.0, idle=3.0, total=60.0)
FAULTS = ("crash p-0 at=1 restart=1", "hang p-1 at=1 for=6", "slow p-2 at=1 factor=6", "partition p-0 at=1 for=8",
          "drain p-2 at=2", "start p at=1 replicas=2")  # fmt: skip


def impatient(faults: list[str], gateways: int, policy: str, seed: int) -> tuple[Scenario, list[WorkloadRequest]]:
    """Requests in bursts, some whose clients leave; second attempts."""
    requests = arrivals(60, 100, seed=seed)
    requests = [replace(each, cancel_after_s=0.7) if n % 7 == 3 else each for n, each in enumerate(requests)]
    hedge = HedgeSpec(after=0.2, budget=0.5, max_load=1.0)
    return scenario(
        3, policy, faults=faults, gateways=gateways, seed=seed, timeouts=IMPATIENT, hedge=hedge, sample_s=0.05
    ), requests


trouble = given(
    st.lists(st.sampled_from(FAULTS), max_size=4, unique=True),
    st.integers(1, 3),
    st.sampled_from(list(POLICIES)),
    st.integers(0, 99),
)


@SLOW
@trouble
def test_at_every_moment_who_arrived_has_ended_or_is_there(
    faults: list[str], gateways: int, policy: str, seed: int
) -> None:
    """SIM-1, looked at twenty times a second."""
    made, requests = impatient(faults, gateways, policy, seed)
    looks = 0

    def look(left: int) -> None:
        nonlocal looks
        looks += 1
        ends, flights = cluster.results.ends, [gateway.flights for gateway in cluster.gateways]
        unfinished = ends.count(UNFINISHED)
        assert left == unfinished + ends.count(NOT_ASKED)
        assert unfinished == sum(map(len, flights)) == sum(gateway.dispatcher.live for gateway in cluster.gateways)
        heard = 0
        for gateway in cluster.gateways:
            dispatcher = gateway.dispatcher
            ended = sum(dispatcher.stats.ends.values()) + sum(dispatcher.stats.refusals.values())
            heard += ended + dispatcher.live
        assert heard == len(requests) - ends.count(NOT_ASKED)

    cluster = Cluster(made, requests, progress=look)
    cluster.play()
    assert looks > 20
    assert sum(cluster.results.counts().values()) == len(requests)


@SLOW
@example(["crash p-0 at=1 restart=1", "hang p-1 at=1 for=6", "slow p-2 at=1 factor=6"], 1, "round_robin", 48)
@trouble
def test_no_slot_and_no_block_is_kept_by_who_has_ended(
    faults: list[str], gateways: int, policy: str, seed: int
) -> None:
    """SIM-7: engines hold what gateways have there and nothing else; a moment after the end they hold nothing."""
    made, requests = impatient(faults, gateways, policy, seed)
    # By then all that was cut is gone: a long answer of a slow replica runs until its time-out.
    last = WorkloadRequest(requests[-1].at_s + IMPATIENT.total + 2.0, 10, 2)
    cluster = played(made, [*requests, last])
    for server in cluster.servers.values():
        engine = server._engine
        server._advance(cluster.kernel.now + 1.0)
        assert not server.attempts and engine.idle
        assert engine.pool.free == engine.pool.total
    for gateway in cluster.gateways:
        assert not gateway.flights
        for replica in gateway.dispatcher.fleet.replicas.values():
            assert replica.in_flight == replica.pending == replica.prefill == replica.decode == 0


asked = st.tuples(st.integers(1, 90), st.integers(1, 40), st.integers(0, 60), st.integers(0, 90), st.integers(0, 3))


@settings(max_examples=60, deadline=None)
@given(st.lists(asked, min_size=1, max_size=20), st.integers(4, 30), st.integers(1, 8), st.integers(4, 60))
def test_every_block_is_free_cached_or_held_and_counted_once(
    requests: list[tuple[int, int, int, int, int]], blocks: int, seqs: int, budget: int
) -> None:
    """SIM-6. Requests are (prompt, output, step of arrival, steps until it is aborted, whose prompt it begins with)."""
    profile = replace(FAST, kv_tokens=16 * blocks, max_num_seqs=seqs, max_num_batched_tokens=budget)
    engine = Engine(profile, prefix_cache=True)
    pool = engine.pool
    assert isinstance(pool, PrefixPool)
    number = 0
    while number <= 155 or not engine.idle:
        for name, (prompt, output, at, life, whose) in enumerate(requests):
            fits = prompt + output <= engine.largest_request
            if fits and at == number:
                shared = tuple(100 * whose + n for n in range(prompt // 16))
                engine.add(str(name), prompt, output, float(number), blocks=shared, block_tokens=16)
            if fits and at + life == number and life < 60:
                engine.abort(str(name))
        engine.step(float(number))
        number += 1
        held = {id(block) for sequence in engine._running for block in sequence.named}
        own = sum(sequence.blocks - len(sequence.named) for sequence in engine._running)
        idle = sum(block.size for block in pool._queue)
        assert pool.free == pool._blank + idle, "free ones are blank, or can still be found"
        assert pool.free + len(held) + own == pool.total, "the others are held"
        assert engine.running <= seqs
    engine.settle()
    assert pool.free == pool.total


# signals


def events_of(made: Scenario, requests: list[WorkloadRequest]) -> list[tuple[Event, list[Any]]]:
    seen: list[tuple[Event, list[Any]]] = []

    def note(event: Event, answer: Any) -> None:
        seen.append((event, [*map(answer_list, answer)]))

    played(made, requests, records=[note] * made.gateways)
    return seen


@SLOW
@given(st.floats(0.05, 3), st.floats(0, 4), st.floats(0, 0.9), st.integers(0, 99))
def test_a_policy_sees_what_was_true_as_long_ago_as_it_believes(
    scrape_s: float, delay_s: float, jitter: float, seed: int
) -> None:
    """SIM-3: of every reading that a gateway has, its age is now − when it was true; and it was true then."""
    true: dict[tuple[str, float], LoadSample | None] = {}
    sample_of = Server.sample

    def note(server: Server, now: float) -> LoadSample | None:
        found = true[server.id, now] = sample_of(server, now)
        return found

    signals = Signals(scrape_s=scrape_s, delay_s=delay_s, jitter=jitter)
    made = scenario(2, signals=signals, seed=seed)
    arrived_at: dict[str, list[float]] = {}

    def look(event: Event, _: Any) -> None:
        if isinstance(event, Scraped):
            arrived_at.setdefault(event.replica, []).append(event.now)
            assert event.sample is not None
            assert event.now - event.sample.at == pytest.approx(delay_s, abs=1e-9)
            assert event.sample == true[event.replica, event.sample.at]
        dispatcher = cluster.gateways[0].dispatcher
        for replica in dispatcher.fleet.replicas.values():
            if replica.sample is not None:
                assert replica.sampled_at == replica.sample.at
                assert event.now - replica.sampled_at >= delay_s - 1e-9, "nothing is younger than it is"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Server, "sample", note)
        cluster = Cluster(made, arrivals(20, 60, seed=seed), records=[look])
        cluster.play()
    for times in arrived_at.values():
        for before, after in pairwise(times):
            assert scrape_s * (1 - jitter) - 1e-9 <= after - before <= scrape_s * (1 + jitter) + 1e-9


# what no policy may know


class Blind:
    """A request whose answer's length nobody can ask for."""

    def __init__(self, request: WorkloadRequest) -> None:
        self._request = request

    def __getattr__(self, name: str) -> Any:
        assert name != "output_tokens", "the dispatcher is told how long the answer will be"
        return getattr(self._request, name)


words = st.one_of(st.none(), st.sampled_from(["a", "b", "m"]))
requests_of_any_kind = st.builds(
    WorkloadRequest,
    at_s=st.just(0.0),
    input_tokens=st.integers(1, 9000),
    output_tokens=st.integers(1, 9000),
    session=words,
    blocks=st.lists(st.integers(0, 9), max_size=12).map(tuple),
    block_tokens=st.just(256),
    conversation=words,
    max_tokens=st.one_of(st.none(), st.integers(1, 9000)),
    tenant=words,
    model=words,
    priority=st.one_of(st.none(), st.sampled_from(["high", "low"])),
)


@given(requests_of_any_kind, st.sampled_from(list(POLICIES)))
def test_what_a_gateway_is_told_of_a_request_is_made_without_its_answer(request: WorkloadRequest, policy: str) -> None:
    """SIM-4: the one way from a workload to the dispatcher never asks for it."""
    affinity = AffinitySpec("x-session-id" if policy == "prefix_affinity" else None)
    made = replace(scenario(), models={"m": ModelSpec("m", {"p": 1}, policy, affinity=affinity)})
    asking = Asking(made)
    blind: Any = Blind(request)
    assert asking.event(1.0, 7, blind) == asking.event(1.0, 7, replace(request, output_tokens=1))


@SLOW
@given(st.sampled_from(list(POLICIES)), st.integers(0, 99), st.integers(1, 3))
def test_decisions_until_the_first_answer_ends_do_not_depend_on_how_long_answers_are(
    policy: str, seed: int, gateways: int
) -> None:
    """SIM-4: the same requests, their lengths dealt out anew: all the same until somebody could know."""
    requests = arrivals(80, 80, mix="300-900/30-200", seed=seed)
    lengths = [each.output_tokens for each in requests]
    Random(seed).shuffle(lengths)
    other = [replace(each, output_tokens=length) for each, length in zip(requests, lengths, strict=True)]
    logs = [events_of(scenario(3, policy, gateways=gateways, seed=seed), work) for work in (requests, other)]
    ends = [next(event.now for event, _ in log if isinstance(event, Finished)) for log in logs]
    before = [[(to_list(event), answer) for event, answer in log if event.now < min(ends)] for log in logs]
    assert before[0] == before[1]
    assert sum(event[0] == "arrived" for event, _ in before[0]) > 3
    assert any(isinstance(event, Arrived) for event, _ in logs[0])
