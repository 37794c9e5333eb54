"""Models of the Kubernetes HPA and of KEDA, as their documentation and code say, for the simulator's pools.

Both see what a Prometheus that scrapes every 15 s has of the requests that wait or are in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil

from kilocard.core.signals import Phase, PoolSignals, ReplicaSignals
from kilocard.scaling.decision import Reason, ScalingDecision
from kilocard.scaling.limits import Limits

#: the HPA's loop (--horizontal-pod-autoscaler-sync-period), its tolerance, its window for scaling down
SYNC_S, TOLERANCE, WINDOW_S = 15.0, 0.1, 300.0
#: default behaviour: within 15 s up by 100 % or 4 pods, whichever is more; down by 100 %
UP_SHARE, UP_PODS = 1.0, 4
#: Prometheus' usual scrape, KEDA's pollingInterval and cooldownPeriod
SCRAPE_S, POLL_S, COOLDOWN_S = 15.0, 30.0, 300.0


#: the metric's total over the pool
Metric = Callable[[PoolSignals | None, Sequence[ReplicaSignals]], float]


def waiting(signals: PoolSignals | None, replicas: Sequence[ReplicaSignals]) -> float:
    """Requests that wait, in engines and at the gateway."""
    held = signals.held if signals is not None else 0.0
    return held + sum(each.waiting or 0.0 for each in replicas if each.phase is Phase.READY)


def in_flight(signals: PoolSignals | None, replicas: Sequence[ReplicaSignals]) -> float:
    """Those that run as well."""
    return waiting(signals, replicas) + sum(each.running or 0.0 for each in replicas if each.phase is Phase.READY)


class Hpa:
    """autoscaling/v2 with a Pods metric: ceil(pods × average / target), pods that are not ready count as 0 on the way
    up. `target`: of the metric, for each pod.
    """

    def __init__(
        self, target: float, low: int, high: int, metric: Metric = waiting, *, scrape_s: float = SCRAPE_S
    ) -> None:
        self._target = target
        self._metric = metric
        self._low, self._high = low, high
        self._scrape_s = scrape_s
        self._synced = self._scraped = float("-inf")
        self._value: float = 0.0
        #: (when, what it wanted) of the last WINDOW_S
        self._wanted: list[tuple[float, int]] = []

    def decide(
        self, now: float, signals: PoolSignals | None, replicas: Sequence[ReplicaSignals], limits: Limits
    ) -> ScalingDecision:
        """Every second; it looks when it is due."""
        have = sum(each.phase is not Phase.DRAINING for each in replicas)
        ready = sum(each.phase is Phase.READY for each in replicas)
        if now - self._scraped >= self._scrape_s:
            self._scraped, self._value = now, self._metric(signals, replicas)
        wanted = have
        if now - self._synced >= SYNC_S:
            self._synced = now
            wanted = self._bounded(now, have, self._desired(have, ready))
        return ScalingDecision(now, replicas[0].pool if replicas else "", have, wanted, Reason.STEADY, "hpa")

    def _desired(self, have: int, ready: int) -> int:
        if not ready:
            return have
        ratio = self._value / ready / self._target
        if abs(ratio - 1.0) <= TOLERANCE:
            return have
        if ratio > 1.0 and have > ready:
            ratio = self._value / have / self._target
            if ratio <= 1.0 + TOLERANCE:
                return have
            return ceil(have * ratio)
        return ceil(ready * ratio)

    def _bounded(self, now: float, have: int, desired: int) -> int:
        desired = min(max(desired, self._low), self._high)
        self._wanted = [each for each in self._wanted if each[0] > now - WINDOW_S] + [(now, desired)]
        if desired > have:
            return min(desired, max(have + UP_PODS, int(have * (1 + UP_SHARE))))
        return min(have, max(wanted for _, wanted in self._wanted))


class Keda(Hpa):
    """A Prometheus scaler: KEDA polls every 30 s and hands its value to an HPA as an External metric with an
    AverageValue: ceil(total / target). `cooldownPeriod` is about the last pod, and the last one stays here.
    """

    def __init__(self, target: float, low: int, high: int, metric: Metric = waiting) -> None:
        super().__init__(target, low, high, metric, scrape_s=POLL_S)

    def _desired(self, have: int, ready: int) -> int:
        ratio = self._value / (self._target * max(1, have))
        if abs(ratio - 1.0) <= TOLERANCE:
            return have
        return ceil(self._value / self._target)
