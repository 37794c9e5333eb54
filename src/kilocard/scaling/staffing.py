"""How many replicas so that enough first tokens come in time: a queue with n servers (Erlang's C)."""

from __future__ import annotations

from math import ceil, exp

#: arrivals and lengths vary more than Poisson and exponential: waits are so many times as long, at least and at most
VARIABILITY, VARIABILITY_MOST = 2.0, 8.0
#: more than a cluster file allows: nobody needs to know how many more
MOST = 100_000


def late_share(
    replicas: int, load: float, service_s: float, within_s: float, variability: float = VARIABILITY
) -> float:
    """Share of the requests that wait longer than `within_s`.

    `load` is what comes over what one replica does, `service_s` what one request takes of one replica's time. M/M/n
    with Kingman's correction (`variability`); 1.0 where the replicas do not keep up.
    """
    if load <= 0:
        return 0.0
    if replicas <= load:
        return 1.0
    blocked = 1.0
    for servers in range(1, replicas + 1):
        blocked = _blocked(servers, load, blocked)
    return _late(replicas, load, blocked, service_s, within_s, variability)


def replicas_for(load: float, service_s: float, within_s: float, share: float, variability: float = VARIABILITY) -> int:
    """Fewest replicas that answer this share of the requests in time; one at least. O(load)."""
    if load >= MOST:
        return ceil(load)
    replicas, blocked = 1, _blocked(1, load, 1.0)
    while replicas <= load or _late(replicas, load, blocked, service_s, within_s, variability) > 1.0 - share:
        replicas += 1
        blocked = _blocked(replicas, load, blocked)
    return replicas


def _blocked(servers: int, load: float, one_fewer: float) -> float:
    """Erlang's B, by its recursion."""
    return load * one_fewer / (servers + load * one_fewer)


def _late(replicas: int, load: float, blocked: float, service_s: float, within_s: float, variability: float) -> float:
    waits = replicas * blocked / (replicas - load * (1.0 - blocked))
    return waits * exp(-(replicas - load) * within_s / (service_s * variability))
