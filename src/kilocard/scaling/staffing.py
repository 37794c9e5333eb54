"""How many replicas so that enough first tokens come in time: a queue with n servers (Erlang's C)."""

from __future__ import annotations

from math import exp

#: arrivals and lengths vary more than Poisson and exponential: waits are so many times as long, at least and at most
VARIABILITY, VARIABILITY_MOST = 2.0, 8.0


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
    blocked = 1.0  # Erlang's B, by its recursion
    for servers in range(1, replicas + 1):
        blocked = load * blocked / (servers + load * blocked)
    waits = replicas * blocked / (replicas - load * (1.0 - blocked))
    return waits * exp(-(replicas - load) * within_s / (service_s * variability))


def replicas_for(load: float, service_s: float, within_s: float, share: float, variability: float = VARIABILITY) -> int:
    """Fewest replicas that answer this share of the requests in time; one at least."""
    replicas = max(1, int(load))
    while late_share(replicas, load, service_s, within_s, variability) > 1.0 - share:
        replicas += 1
    return replicas
