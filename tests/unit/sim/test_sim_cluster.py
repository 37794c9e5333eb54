"""A simulated cluster: nothing is lost, what is known is old, faults do what they do."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_cluster import FAST, arrivals, numbers, played, scenario

from kilocard.core.errors import UsageError
from kilocard.dispatch.events import Event, Scraped
from kilocard.sim.collector import CANCELLED, COMPLETED, FAILED, UNFINISHED
from kilocard.sim.scenario import Signals
from kilocard.spec.model import HedgeSpec, Timeouts
from kilocard.workload.request import WorkloadRequest

IMPATIENT = Timeouts(first_token=3.0, first_token_per_prompt_token=0.0, idle=3.0, total=60.0)
FAULTS = ["crash p-0 at=2 restart=1", "crash p-1 at=3 restart=never", "hang p-1 at=2 for=6",
          "slow p-2 at=1 factor=6 for=4",
          "partition p-0 at=1 for=8", "drain p-2 at=4", "start p at=2 replicas=2", "crash p-2 at=4.5"]  # fmt: skip


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.sampled_from(FAULTS), max_size=4, unique=True),
    st.integers(1, 3),
    st.sampled_from(["round_robin", "least_connections", "queue_depth", "adaptive"]),
    st.integers(0, 99),
    st.floats(5, 200),
    st.booleans(),
)
def test_every_request_ends_exactly_once_whatever_happens(
    faults: list[str], gateways: int, policy: str, seed: int, rate: float, hedges: bool
) -> None:
    requests = arrivals(rate, 80, seed=seed)
    requests = [replace(each, cancel_after_s=0.7) if n % 7 == 3 else each for n, each in enumerate(requests)]
    hedge = HedgeSpec(after=0.2, budget=0.5, max_load=1.0) if hedges else None
    cluster = played(
        scenario(3, policy, faults=faults, gateways=gateways, seed=seed, timeouts=IMPATIENT, hedge=hedge), requests
    )
    results = cluster.results
    counts = results.counts()
    assert sum(counts.values()) == len(requests)
    assert counts["unfinished"] == counts["not_asked"] == 0
    assert sum(results.codes.values()) == counts["rejected"] + counts["failed"]
    for place, request in enumerate(requests):
        assert results.end_s[place] >= results.arrived_s[place] == request.at_s
        if results.ends[place] == COMPLETED:
            assert results.arrived_s[place] < results.first_s[place] <= results.end_s[place]
    assert not any(gateway.flights or gateway.dispatcher.live for gateway in cluster.gateways)
    assert sum(tally[0] for tally in results.by_replica.values()) == counts["completed"]


def test_engines_are_empty_when_all_is_over_but_for_what_was_just_cut() -> None:
    cluster = played(scenario(2, gateways=2), arrivals(30, 100))
    assert all(not server.attempts and not server.running for server in cluster.servers.values())


def test_one_request_alone_takes_what_the_profile_says() -> None:
    request = WorkloadRequest(1.0, 1000, 11)
    signals = Signals(hop_s=0.25)
    results = played(scenario(1, signals=signals), [request]).results
    prefill = FAST.step_s(1000, 0, 1000, 1000 * 500)
    assert results.first_s[0] == pytest.approx(1.0 + 2 * 0.25 + prefill, abs=1e-6)
    decode = sum(FAST.step_s(0, 1, 1000 + n) for n in range(1, 11))
    assert results.end_s[0] - results.first_s[0] == pytest.approx(decode, abs=1e-6)


def test_a_request_longer_than_the_engine_takes_is_rejected_and_is_no_sign_of_overload() -> None:
    requests = arrivals(20, 200)
    requests.append(WorkloadRequest(requests[-1].at_s, 9000, 10))
    found = numbers(scenario(2), requests)
    assert found["rejected"] == 1
    assert found["refusals"] == {"too_long": 1}
    assert found["state"] == "stable"


# signals


def events_of(cluster_scenario: Any, requests: list[WorkloadRequest]) -> list[Event]:
    seen: list[Event] = []
    played(cluster_scenario, requests, records=[lambda event, _: seen.append(event)])
    return seen


def test_a_partition_hides_the_gauges_and_nothing_else() -> None:
    found = events_of(scenario(2, faults=["partition p-0 at=2 for=3"]), arrivals(20, 200))
    lost = [e for e in found if isinstance(e, Scraped) and e.sample is None]
    assert lost
    assert all(e.replica == "p-0" and 2 <= e.now <= 5.1 for e in lost)


# faults


def test_requests_of_a_crashed_replica_are_tried_elsewhere() -> None:
    """What had no token yet is sent again; what had is broken off, and told so."""
    requests = arrivals(36, 400, mix="2000-4000/20-60")
    calm = played(scenario(3), requests).results.counts()
    cluster = played(scenario(3, faults=["crash p-0 at=5 restart=1"]), requests)
    counts = cluster.results.counts()
    assert calm == counts | {"completed": 400, "failed": 0}
    assert 0 < counts["failed"] < 20
    assert any(attempts > 1 and cluster.results.ends[place] == COMPLETED
               for place, attempts in enumerate(cluster.results.attempts))  # fmt: skip
    for place in range(len(requests)):
        if cluster.results.ends[place] == FAILED:  # only what had begun, or was caught when nobody could be tried
            assert cluster.results.first_s[place] < 5.1


def test_a_crashed_replica_serves_again_when_it_has_loaded() -> None:
    cluster = played(scenario(2, faults=["crash p-0 at=2 restart=1"], load_s=3.0), arrivals(20, 600))
    server = cluster.servers["p-0"]
    assert server.up_since == 6.0
    assert server.served > 150


def test_a_hung_replica_ends_in_time_outs_and_is_taken_out() -> None:
    found = played(scenario(2, faults=["hang p-0 at=2"], timeouts=IMPATIENT), arrivals(20, 400))
    counts = found.results.counts()
    assert counts["completed"] + counts["failed"] == 400
    assert 0 < counts["failed"] < 40
    assert found.servers["p-0"].served < 50


def test_a_straggler_gets_less_from_queue_depth_than_from_round_robin() -> None:
    requests = arrivals(40, 800)
    tails = {
        policy: numbers(scenario(4, policy, faults=["slow p-0 factor=5"]), requests)["e2e_s"]["p95"]
        for policy in ("round_robin", "queue_depth")
    }
    assert tails["queue_depth"] < 0.8 * tails["round_robin"]


def test_a_straggler_stays_one_when_it_hangs_or_crashes() -> None:
    """One request at a time, so that each takes the same time on a healthy replica."""
    requests = [WorkloadRequest(10.0 * n, 100, 50) for n in range(1, 7)]
    faults = ["slow p-0 factor=3", "hang p-0 at=25 for=1", "crash p-0 at=35 restart=0"]
    results = played(scenario(1, faults=faults, load_s=1.0), requests).results
    usual = played(scenario(1), requests).results
    first, last = (results.end_s[n] - requests[n].at_s for n in (0, 5))
    assert first == pytest.approx(last)
    assert first == pytest.approx(3 * (usual.end_s[0] - 10.0), rel=0.01)


def test_a_drained_replica_finishes_what_it_has_and_is_gone() -> None:
    cluster = played(scenario(3, faults=["drain p-1 at=4"], gateways=2), arrivals(30, 400))
    assert cluster.results.counts()["completed"] == 400
    assert "p-1" not in cluster.servers
    (gone,) = cluster.results.left
    assert gone.served > 10


def test_a_started_replica_serves_after_its_load_time() -> None:
    cluster = played(scenario(1, faults=["start p at=2"], load_s=4.0), arrivals(20, 400))
    assert cluster.servers["p-1"].up_since == 6.0
    assert cluster.servers["p-1"].served > 50
    assert cluster.servers["p-0"].up_s - cluster.servers["p-1"].up_s == pytest.approx(6.0)


def test_a_client_that_leaves_frees_its_place() -> None:
    requests = [WorkloadRequest(0.0, 100, 4000, cancel_after_s=1.0), WorkloadRequest(0.1, 100, 10)]
    cluster = played(scenario(1), requests)
    assert list(cluster.results.ends) == [CANCELLED, COMPLETED]
    assert cluster.results.end_s[0] == 1.0


def test_a_client_that_leaves_ends_both_attempts_of_a_hedge() -> None:
    requests = [WorkloadRequest(0.0, 100, 2000, cancel_after_s=2.0), WorkloadRequest(5.0, 100, 10)]
    hedge = HedgeSpec(after=0.2, budget=1.0, max_load=1.0)
    cluster = played(scenario(2, hedge=hedge, faults=["hang p-0 at=0", "hang p-1 at=0"]), requests, until_s=4.0)
    assert cluster.results.attempts[0] == 2
    assert cluster.results.ends[0] == CANCELLED
    assert not any(server.attempts for server in cluster.servers.values())


def test_what_still_runs_at_the_end_is_counted() -> None:
    cluster = played(scenario(1), [WorkloadRequest(0.0, 100, 4000), WorkloadRequest(50.0, 10, 10)], until_s=2.0)
    assert cluster.results.ends[0] == UNFINISHED
    assert cluster.results.counts()["not_asked"] == 1
    assert math.isnan(cluster.results.end_s[0])


def test_a_later_turn_waits_for_the_answer_and_for_the_person() -> None:
    chat = [
        WorkloadRequest(0.0, 100, 100, session="s"),
        WorkloadRequest(0.1, 300, 20, session="s", turn=1, think_s=2.0),
        WorkloadRequest(30.0, 400, 20, session="s", turn=2, think_s=2.0),
    ]
    results = played(scenario(1), chat).results
    assert results.arrived_s[1] == results.end_s[0] + 2.0
    assert results.arrived_s[2] == 30.0


@pytest.mark.parametrize("text", ["crash", "crash p-0", "melt p-0 at=1", "slow p-0 factor=0", "drain p-0 at=x",
                                  "crash p-0 at=1 for=3", "start p at=1 replicas=0"])  # fmt: skip
def test_a_fault_that_is_wrong_says_what_is(text: str) -> None:
    with pytest.raises(UsageError, match="fault"):
        scenario(2, faults=[text])


@pytest.mark.parametrize("text", ["drain q-0 at=1", "start q at=1", "crash p at=1"])
def test_a_fault_of_nobody_is_an_error(text: str) -> None:
    with pytest.raises(UsageError, match="there is no"):
        played(scenario(2, faults=[text]), arrivals(5, 5))


@pytest.mark.parametrize(
    ("both", "longer"),
    [
        (["slow p-0 at=1 for=2 factor=3", "slow p-0 at=2 factor=4 for=90"], "slow p-0 at=2 factor=4 for=90"),
        (["hang p-0 at=1 for=3", "hang p-0 at=2 for=10"], "hang p-0 at=2 for=10"),
        (["hang p-0 at=2 for=10", "hang p-0 at=3 for=1"], "hang p-0 at=2 for=10"),
    ],
)
def test_overlapping_faults_last_as_long_as_any_of_them(both: list[str], longer: str) -> None:
    """The end of one is not the end of the other."""
    patient = Timeouts(first_token=1000.0, idle=1000.0, total=1000.0)

    def takes(faults: list[str]) -> float:
        [end] = played(scenario(1, faults=faults, timeouts=patient), [WorkloadRequest(5.0, 300, 50)]).results.end_s
        return end

    assert takes(both) == pytest.approx(takes([longer]), rel=0.1)
    assert takes([longer]) > 1.1 * takes([])
