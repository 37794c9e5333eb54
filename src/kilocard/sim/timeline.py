"""The cluster looked at in regular steps: for the report's curves, and for how evenly work is spread."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple

from kilocard.sim.server import Server


class Moment(NamedTuple):
    """Sums over replicas that are up, unless said otherwise."""

    at_s: float
    #: replicas that hold GPUs, those that load and drain included
    there: int
    up: int
    running: int
    waiting: int
    #: in the gateways' own queues
    held: int
    #: shares 0-1
    kv_mean: float
    kv_max: float
    #: most requests on one replica
    most: int
    #: standard deviation of the requests on a replica, over their mean; 0 where there are none
    spread: float
    preempted: int
    prefix_asked: int
    prefix_found: int


class Timeline:
    """Gauges are as they stood when something last happened on the replica or it was last scraped: bringing a thousand
    of them to the moment would cost more than the curves are worth."""

    def __init__(self) -> None:
        self.moments: list[Moment] = []

    def look(self, now: float, servers: Sequence[Server], held: int) -> None:
        counts: list[int] = []
        running = waiting = preempted = asked = found = 0
        kv = kv_max = 0.0
        for server in servers:
            preemptions, queries, hits = server.counts()
            preempted += preemptions
            asked += queries
            found += hits
            if not server.up:
                continue
            running += server.running
            waiting += server.waiting
            counts.append(server.running + server.waiting)
            usage = server.kv_usage
            kv += usage
            kv_max = max(kv_max, usage)
        up = len(counts)
        mean = sum(counts) / up if up else 0.0
        spread = sqrt(sum((count - mean) ** 2 for count in counts) / up) / mean if mean else 0.0
        self.moments.append(
            Moment(
                now, len(servers), up, running, waiting, held, kv / up if up else 0.0, kv_max, max(counts, default=0),
                spread, preempted, asked, found,
            )
        )  # fmt: skip
