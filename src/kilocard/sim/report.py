"""A played cluster in numbers: the part of `kilocard simulate --json` that one policy has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kilocard.core.latency import tpot_s
from kilocard.core.statistics import mean, of_sorted
from kilocard.sim.cluster import Cluster
from kilocard.sim.collector import CANCELLED, COMPLETED, NOT_ASKED, Collector
from kilocard.sim.saturation import saturation
from kilocard.sim.scaling_document import scaling_document
from kilocard.sim.server import Server


@dataclass(frozen=True, slots=True)
class Slo:
    """Seconds. A request of one token has no TPOT, so none that it could miss."""

    ttft_s: float
    tpot_s: float


def report(cluster: Cluster, slo: Slo) -> dict[str, Any]:
    """JSON-able, and the same bytes for the same scenario, workload and seed. Rates are over the arrivals' time."""
    results = cluster.results
    ttft, tpot, e2e, good = _latencies(results, slo)
    counts = results.counts()
    asked = len(results.requests) - counts["not_asked"]
    window = arrivals_s(results) or results.ended_s or 1.0
    servers = [*results.left, *cluster.servers.values()]
    preemptions, queries, hits = map(sum, zip(*(server.counts() for server in servers), strict=True))
    return {
        **counts,
        "refusals": dict(sorted(results.codes.items())),
        "state": saturation(results, window).word,
        "output_tokens_per_s": tokens_until(results, window) / window,
        "requests_per_s": counts["completed"] / max(results.ended_s, window),
        "ttft_s": spread(ttft),
        "tpot_s": spread(tpot),
        "e2e_s": spread(e2e),
        # what the client takes back counts for nobody
        "goodput": good / window,
        "goodput_share": good / (asked - counts["cancelled"]) if asked > counts["cancelled"] else None,
        "gpu_hours": sum(server.held_s * server.pool.gpus for server in servers) / 3600,
        "preemptions": preemptions,
        "prefix_hit_share": hits / queries if queries else None,
        "retries": sum(max(0, attempts - 1) for attempts in results.attempts),
        "simulated_s": results.ended_s,
        "balance": _balance(cluster, servers, results),
        "pools": _pools(servers, results),
        "scaling": scaling_document(cluster, servers),
        "tenants": _tenants(results, slo),
        "curves": {"ttft_s": _curve(ttft), "tpot_s": _curve(tpot), "e2e_s": _curve(e2e)},
        "over_time": [moment._asdict() for moment in cluster.timeline.moments],
    }


def arrivals_s(results: Collector) -> float:
    """From the start to the last arrival."""
    return max((at for at in results.arrived_s if at == at), default=0.0)


def spread(values: Sequence[float]) -> dict[str, float] | None:
    """Mean and percentiles of values in order. None: there is nothing to take them of."""
    if not values:
        return None
    p50, p95, p99 = (of_sorted(values, share) for share in (0.5, 0.95, 0.99))
    return {"mean": mean(values), "p50": p50, "p95": p95, "p99": p99}


#: shares at which a distribution is given
SHARES = (*(place / 40 for place in range(39)), 0.96, 0.97, 0.98, 0.99, 0.995, 1.0)


def _curve(ordered: Sequence[float]) -> list[tuple[float, float]]:
    """(share, value): so many were at most so long."""
    return [(share, of_sorted(ordered, share)) for share in SHARES] if ordered else []


def _latencies(
    results: Collector, slo: Slo, places: Iterable[int] | None = None
) -> tuple[list[float], list[float], list[float], int]:
    """TTFT, TPOT and e2e of completed requests, sorted, and how many met the SLO."""
    ttft: list[float] = []
    tpot: list[float] = []
    e2e: list[float] = []
    good = 0
    arrived_s, first_s, end_s, requests, ends = (
        results.arrived_s, results.first_s, results.end_s, results.requests, results.ends,
    )  # fmt: skip
    for place in range(len(requests)) if places is None else places:
        if ends[place] != COMPLETED:
            continue
        at = arrived_s[place]
        first, whole = first_s[place] - at, end_s[place] - at
        ttft.append(first)
        e2e.append(whole)
        each = tpot_s(first, whole, requests[place].output_tokens)
        if each is not None:
            tpot.append(each)
        good += first <= slo.ttft_s and (each is None or each <= slo.tpot_s)
    return sorted(ttft), sorted(tpot), sorted(e2e), good


def tokens_until(results: Collector, window: float) -> float:
    """Output tokens of completed requests until this moment: a request's tokens come evenly after its first."""
    total = 0.0
    for place, request in enumerate(results.requests):
        if results.ends[place] != COMPLETED:
            continue
        first, end = results.first_s[place], results.end_s[place]
        if end <= window:
            total += request.output_tokens
        elif first <= window:
            total += 1 + (request.output_tokens - 1) * (window - first) / (end - first)
    return total


def _balance(cluster: Cluster, servers: Sequence[Server], results: Collector) -> dict[str, Any]:
    """How evenly work lies: over time (spread of the requests on a replica) and in all (the busiest over the mean)."""
    last = arrivals_s(results)
    moments = [each for each in cluster.timeline.moments if each.at_s <= last and each.running]
    served = [results.by_replica.get(server.id, (0, 0)) for server in servers]
    tokens = [each[1] for each in served]
    busy = [server.busy_s / server.up_s for server in servers if server.up_s]
    return {
        "spread_mean": mean([each.spread for each in moments]) if moments else None,
        "busiest_over_mean_tokens": max(tokens) * len(tokens) / sum(tokens) if any(tokens) else None,
        "busy_share_min": min(busy, default=None),
        "busy_share_mean": mean(busy) if busy else None,
        "busy_share_max": max(busy, default=None),
    }


def _pools(servers: Sequence[Server], results: Collector) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for server in servers:
        pool = found.setdefault(server.pool.name, {"replicas": 0, "completed": 0, "output_tokens": 0, "preemptions": 0})
        requests, tokens = results.by_replica.get(server.id, (0, 0))
        pool["replicas"] += 1
        pool["completed"] += requests
        pool["output_tokens"] += tokens
        pool["preemptions"] += server.counts()[0]
    return found


def _tenants(results: Collector, slo: Slo) -> dict[str, Any] | None:
    """By tenant, and Jain's index of the shares of their output tokens that they got. None: nobody is named."""
    places: dict[str, list[int]] = {}
    for place, request in enumerate(results.requests):
        if request.tenant is not None and results.ends[place] not in (NOT_ASKED, CANCELLED):
            places.setdefault(request.tenant, []).append(place)
    if not places:
        return None
    found: dict[str, Any] = {}
    shares: list[float] = []
    for tenant, its in sorted(places.items()):
        ttft, tpot, e2e, good = _latencies(results, slo, its)
        wanted = sum(results.requests[place].output_tokens for place in its)
        got = sum(results.requests[place].output_tokens for place in its if results.ends[place] == COMPLETED)
        shares.append(got / wanted)
        found[tenant] = {
            "requests": len(its), "completed": len(ttft), "output_tokens": got, "goodput_share": good / len(its),
            "ttft_s": spread(ttft), "tpot_s": spread(tpot), "e2e_s": spread(e2e),
        }  # fmt: skip
    squares = sum(share * share for share in shares)
    return {"jain": sum(shares) ** 2 / (len(shares) * squares) if squares else None, "by_name": found}
