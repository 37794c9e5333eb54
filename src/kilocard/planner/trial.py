"""A trial on virtual time: replicas of one profile behind one gateway, Poisson arrivals, percentiles of what came out.

The closed form gives means; queues make tails. It is the simulator's cluster: one gateway's dispatcher with
queue_depth, its hold queue and gauges that are read once a second, before the engine model. A trial is bounded: a large
cluster is tried with fewer replicas at the same rate each, and says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random

from kilocard.core.errors import PlanError
from kilocard.core.latency import tpot_s
from kilocard.core.statistics import mean, percentiles
from kilocard.perf.profile import Profile
from kilocard.sim.cluster import Cluster
from kilocard.sim.collector import COMPLETED, REJECTED, TOO_LONG
from kilocard.sim.report import tokens_until
from kilocard.sim.scenario import Scenario, Signals
from kilocard.workload.arrivals import Poisson
from kilocard.workload.generate import generate
from kilocard.workload.lengths import Length
from kilocard.workload.mixes import Mix
from kilocard.workload.request import WorkloadRequest

#: output tokens that one trial makes at most, about a second of CPU
TOKENS = 800_000
#: requests: at least so many, or a 95th percentile is not worth its name; usually; at most
FEWEST, USUAL, MOST = 200, 600, 3000
#: virtual seconds: the gateway's clock ticks and gauges are read all along, also while nothing comes
LONGEST_S = 20_000.0
#: a gateway beside its engines: nothing on the way, and gauges once a second
FRESH = Signals(hop_s=0.0)
#: of the arrivals, left out: the start, while the batch fills, and the end, while nothing follows
_WARM_UP, _END = 0.3, 0.9


@dataclass(frozen=True, slots=True)
class Tail:
    """Seconds."""

    mean: float
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True)
class Trial:
    ttft_s: Tail
    #: None where outputs have one token
    tpot_s: Tail | None
    e2e_s: Tail
    #: all replicas of the trial together
    output_tokens_per_s: float
    #: how long requests came
    seconds: float
    #: requests that the percentiles are of
    requests: int
    #: replicas that were tried, of how many that were planned
    replicas: int
    of_replicas: int
    #: how many in flight a replica had on average
    concurrency: float
    preemptions: int
    #: requests that no replica could ever hold
    refused: int
    #: requests that the gateway had no place for in time
    turned_away: int


def trial(
    profile: Profile,
    *,
    replicas: int,
    rate_per_s: float,
    inputs: Length,
    outputs: Length,
    streams: float,
    rng: Random,
) -> Trial:
    """`rate_per_s` is the whole cluster's; `streams` how many a replica should run at once."""
    most = max(FEWEST, min(MOST, int(TOKENS / max(1.0, outputs.mean))))
    batch = max(1.0, streams)
    # Five rounds of a batch for each replica: fewer replicas where that would be more than the bound.
    tried = max(1, min(replicas, int(most / (5 * batch))))
    # A rate at which requests hardly ever meet is as good as a lower one, and takes less time.
    rate = max(rate_per_s * tried / replicas, FEWEST / LONGEST_S)
    count = max(FEWEST, min(most, max(USUAL, int(8 * batch * tried)), int(rate * LONGEST_S)))
    arrivals = Poisson(rate)
    requests = list(islice(generate(arrivals, Mix.of(inputs, outputs), rng), count))
    return run_trial(profile, requests, replicas=tried, of_replicas=replicas)


def run_trial(
    profile: Profile, requests: Sequence[WorkloadRequest], *, replicas: int, of_replicas: int | None = None
) -> Trial:
    """Play the requests, in order of at_s. Raises PlanError where not one of them could be served."""
    cluster = Cluster(Scenario.of_one(profile, replicas, signals=FRESH), requests)
    results = cluster.play()
    begin = requests[int(len(requests) * _WARM_UP)].at_s
    end = requests[min(len(requests) - 1, int(len(requests) * _END))].at_s
    done = [
        place
        for place, request in enumerate(requests)
        if results.ends[place] == COMPLETED and begin <= request.at_s < end
    ]
    if not done:
        ends = results.ends
        raise PlanError(
            f"not one of {len(requests)} requests was served on virtual time: {ends.count(TOO_LONG)} were longer than "
            f"a replica's max-model-len or its whole KV cache, {ends.count(REJECTED)} were turned away by the gateway; "
            "plan with shorter --input and --output, more memory for a replica, or more GPUs",
            code="nothing_served",
        )
    ttft = [results.first_s[place] - results.arrived_s[place] for place in done]
    e2e = [results.end_s[place] - results.arrived_s[place] for place in done]
    each = map(tpot_s, ttft, e2e, (requests[place].output_tokens for place in done))
    tpot = [value for value in each if value is not None]
    length = end - begin
    return Trial(
        ttft_s=_tail(ttft),
        tpot_s=_tail(tpot) if tpot else None,
        e2e_s=_tail(e2e),
        output_tokens_per_s=(tokens_until(results, end) - tokens_until(results, begin)) / length,
        seconds=requests[-1].at_s,
        requests=len(done),
        replicas=replicas,
        of_replicas=of_replicas or replicas,
        # Little: time in the system × arrivals
        concurrency=sum(e2e) / length / replicas,
        preemptions=sum(server.counts()[0] for server in cluster.servers.values()),
        refused=results.ends.count(TOO_LONG),
        turned_away=results.ends.count(REJECTED),
    )


def _tail(values: list[float]) -> Tail:
    return Tail(mean(values), *percentiles(values, (0.5, 0.95, 0.99)))
