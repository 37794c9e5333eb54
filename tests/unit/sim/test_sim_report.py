"""What a simulation comes to: the same bytes for a seed, and true words."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest
from small_cluster import FAST, SLO, arrivals, numbers, played, scenario

from kilocard.dispatch.record import answer_list, to_list
from kilocard.dispatch.replay import Setup, check, header
from kilocard.routing.registry import POLICIES
from kilocard.sim.cluster import gateway_seed
from kilocard.sim.recorded import recorded_requests
from kilocard.sim.report import report
from kilocard.workload.request import WorkloadRequest

SCRIPT = """
import json
from dataclasses import replace
from small_cluster import arrivals, numbers, scenario
from kilocard.routing.registry import POLICIES

faults = ["crash p-1 at=3 restart=1", "partition p-2 at=1 for=2"]
shared = {n: tuple(100 * (n % 9) + block for block in range(4)) for n in range(300)}
requests = [
    replace(each, input_tokens=1024 + each.input_tokens, blocks=shared[n], block_tokens=256, tenant=str(n % 3))
    for n, each in enumerate(arrivals(50, 300))
]
made = {policy: scenario(4, policy, gateways=3, seed=7, faults=faults) for policy in POLICIES}
print(json.dumps({policy: numbers(each, requests) for policy, each in made.items()}))
"""


def test_two_runs_give_the_same_bytes_whatever_the_hash_seed_is() -> None:
    """SIM-2."""
    outputs = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT], env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True, check=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(outputs) == 1
    found = json.loads(outputs.pop())
    assert set(found) == set(POLICIES)
    assert all(each["completed"] > 250 for each in found.values())


def test_another_seed_is_another_run() -> None:
    requests = arrivals(50, 300)
    one, two = (numbers(scenario(4, gateways=2, seed=seed), requests) for seed in (1, 2))
    assert one["ttft_s"] != two["ttft_s"]


def test_the_counts_add_up_and_an_overloaded_cluster_is_called_so() -> None:
    found = numbers(scenario(1), arrivals(60, 600))
    assert found["state"] == "overloaded"
    ends = ("completed", "rejected", "failed", "cancelled", "unfinished", "not_asked")
    assert sum(found[end] for end in ends) == 600


def test_a_cluster_that_keeps_up_is_called_stable() -> None:
    found = numbers(scenario(4), arrivals(20, 600))
    assert found["state"] == "stable"
    assert found["goodput_share"] > 0.95
    assert found["goodput"] == pytest.approx(found["goodput_share"] * 20, rel=0.15)


def test_output_tokens_per_s_is_what_the_arrivals_ask_for_when_the_cluster_keeps_up() -> None:
    requests = arrivals(20, 2000, mix="200/50")
    assert numbers(scenario(4), requests)["output_tokens_per_s"] == pytest.approx(20 * 50, rel=0.05)


def test_gpu_hours_count_replicas_from_their_start_on_loading_included() -> None:
    found = numbers(scenario(2, faults=["start p at=5", "drain p-0 at=8"], load_s=5.0), arrivals(10, 200))
    whole = found["simulated_s"]
    assert whole + (whole - 5) + 8 <= 3600 * found["gpu_hours"] < whole + (whole - 5) + 11


def test_tenants_are_told_apart() -> None:
    requests = [replace(each, tenant="ab"[place % 3 == 0]) for place, each in enumerate(arrivals(20, 300))]
    found = numbers(scenario(3), requests)["tenants"]
    assert {name: its["requests"] for name, its in found["by_name"].items()} == {"a": 200, "b": 100}
    assert found["jain"] == pytest.approx(1.0)


def test_preemptions_are_counted() -> None:
    small = replace(FAST, kv_tokens=2048, max_num_seqs=16)
    requests = arrivals(6, 200, mix="200/150-400")
    assert numbers(scenario(1, profile=small), requests)["preemptions"] > 0
    assert numbers(scenario(1), requests)["preemptions"] == 0


def test_shared_prefixes_are_found_again() -> None:
    blocks = tuple(range(20))
    requests = [WorkloadRequest(n * 1.0, 320 + 16, 4, blocks=blocks, block_tokens=16) for n in range(30)]
    hits = numbers(scenario(1), requests)["prefix_hit_share"]
    assert hits == pytest.approx(29 / 30 * 320 / 336)


def test_prefix_affinity_keeps_conversations_where_their_beginning_is_cached() -> None:
    """40 conversations of long turns, more than one replica's cache holds."""
    requests = [
        WorkloadRequest(
            n * 0.25, 2048 + 16, 8, blocks=tuple(1000 * (n % 40) + block for block in range(128)), block_tokens=16
        )
        for n in range(400)
    ]
    hits = {
        policy: numbers(scenario(4, policy), requests)["prefix_hit_share"]
        for policy in ("queue_depth", "prefix_affinity")
    }
    assert hits["prefix_affinity"] > 0.8 > hits["queue_depth"] + 0.2


# routing


def test_queue_depth_beats_round_robin_where_lengths_vary() -> None:
    """R23: costs one or two orders of magnitude apart, unknown when a request comes."""
    requests = arrivals(65, 1200, mix="90% 100/30; 10% 3000/500")
    tails = {policy: numbers(scenario(4, policy), requests)["ttft_s"] for policy in ("round_robin", "queue_depth")}
    assert tails["queue_depth"]["p95"] < 0.7 * tails["round_robin"]["p95"]


def test_gateways_that_do_not_see_each_other_herd() -> None:
    """Between two readings each sends to what looked empty to all of them; one gateway knows what it has sent."""
    requests = arrivals(30, 1200, mix="80% 100/30; 20% 1500/200")
    spreads = [numbers(scenario(8, gateways=gateways), requests)["balance"]["spread_mean"] for gateways in (1, 4)]
    assert spreads[1] > 1.2 * spreads[0]


# parity


def logged(seed: int) -> list[list[object]]:
    """A decision log of a simulated gateway, through JSON as in a file."""
    cluster_scenario = scenario(3, seed=seed, faults=["crash p-1 at=3 restart=1"])
    lines: list[object] = []
    played(
        cluster_scenario,
        arrivals(40, 300, seed=seed),
        records=[lambda event, answer: lines.append([to_list(event), *map(answer_list, answer)])],
    )
    models, pools = cluster_scenario.models, {pool.name: pool.facts for pool in cluster_scenario.pools}
    setup = Setup(models, pools, gateway_seed(seed, 0), cluster_scenario.signals.scrape_s)
    return json.loads(json.dumps([header(setup, "test", 0.0, 0.0), *lines]))  # type: ignore[no-any-return]  # JSON


def test_a_replay_decides_as_the_simulators_gateway_did() -> None:
    """SIM-5."""
    found = check(logged(5))
    assert found.requests == 300
    assert found.decisions > 300
    assert found.differing == 0


def test_a_decision_log_is_a_workload() -> None:
    requests = arrivals(40, 300, seed=5)
    again = recorded_requests(logged(5))
    assert [(each.input_tokens, each.at_s) for each in again] == [
        (each.input_tokens, pytest.approx(each.at_s - requests[0].at_s)) for each in requests
    ]
    same = sum(a.output_tokens == b.output_tokens for a, b in zip(again, requests, strict=True))
    assert same > 270  # but for those that the crash cut


def test_a_report_is_plain_data() -> None:
    cluster = played(scenario(2), arrivals(10, 30))
    assert json.loads(json.dumps(report(cluster, SLO)))["completed"] == 30
