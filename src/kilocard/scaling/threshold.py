"""One more when replicas have been busy for a while, one fewer when they have been idle for long."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kilocard.core.signals import ReplicaSignals
from kilocard.scaling.decision import Numbers, Reason
from kilocard.scaling.proposal import Proposal
from kilocard.scaling.view import View, per
from kilocard.spec.scaling import ScalingSpec

Gauge = Callable[[ReplicaSignals], float | None]


def _in_flight(replica: ReplicaSignals) -> float | None:
    if replica.running is None:
        return None
    return max(float(replica.in_flight), replica.running + (replica.waiting or 0.0))


GAUGES: Mapping[str, Gauge] = {
    "waiting": lambda replica: replica.waiting,
    "in_flight": _in_flight,
    "kv_usage": lambda replica: replica.kv_usage,
}
WORDS = {"waiting": "requests wait", "in_flight": "requests are in flight", "kv_usage": "of the KV cache is used"}


class Threshold:
    """The average counts replicas that load, since they will serve; requests held in the gateway count as waiting.

    What is unknown is not counted for growing, and counts as `up.above` for shrinking.
    """

    def __init__(self, spec: ScalingSpec) -> None:
        self._spec = spec
        self._gauge = GAUGES[spec.signal]
        self._above_since: float | None = None
        self._below_since: float | None = None

    def propose(self, now: float, view: View) -> Proposal:
        spec, signals = self._spec, view.signals
        silent = view.silent(self._gauge)
        held = signals.held if signals is not None and spec.signal != "kv_usage" else 0.0
        known = sum(self._gauge(each) or 0.0 for each in view.ready if each not in silent) + held
        low = per(known, view.serving)
        high = per(known + len(silent) * spec.up.threshold, view.serving)
        believed = view.believed(self._gauge)
        self._above_since = _since(self._above_since, low > spec.up.threshold, now)
        self._below_since = _since(self._below_since, believed and high <= spec.down.threshold, now)
        numbers: Numbers = {
            "signal": spec.signal, "average": round(low, 3), "held": held, "silent": len(silent),
            "above_for_s": _age(self._above_since, now), "below_for_s": _age(self._below_since, now),
        }  # fmt: skip
        what = f"{low:.3g} {WORDS[spec.signal]} per replica"
        if self._above_since is not None:
            bound = f"more than {spec.up.threshold:g} for {now - self._above_since:.0f} of {spec.up.for_seconds:g} s"
            if now - self._above_since < spec.up.for_seconds:
                return Proposal(view.have, Reason.WAITING, f"{what}, {bound}", numbers)
            return Proposal(view.have + spec.up.step, Reason.ABOVE, f"{what}, {bound}", numbers)
        if not believed and low <= spec.down.threshold:
            return Proposal(
                view.have, Reason.BLIND, f"{_blind(view, len(silent), spec.signal)}: nothing is removed", numbers
            )
        if self._below_since is not None and view.have:
            bound = f"at most {spec.down.threshold:g} for {now - self._below_since:.0f} of {spec.down.for_seconds:g} s"
            if now - self._below_since < spec.down.for_seconds:
                return Proposal(view.have, Reason.WAITING, f"{what}, {bound}", numbers)
            # the last replica goes only when the pool is idle
            fewer = max(min(view.have, 1), view.have - spec.down.step)
            return Proposal(fewer, Reason.BELOW, f"{what}, {bound}", numbers)
        return Proposal(view.have, Reason.STEADY, f"{what}, between the bounds", numbers)

    def changed(self, now: float) -> None:
        self._above_since = self._below_since = None

    def unseen(self) -> None:
        self._above_since = self._below_since = None

    def snapshot(self, now: float) -> dict[str, Any]:
        return {"above_for_s": _age(self._above_since, now), "below_for_s": _age(self._below_since, now)}

    def restore(self, now: float, saved: Mapping[str, Any]) -> None:
        above, below = saved.get("above_for_s"), saved.get("below_for_s")
        self._above_since = now - above if isinstance(above, int | float) else None
        self._below_since = now - below if isinstance(below, int | float) else None


def _since(since: float | None, holds: bool, now: float) -> float | None:
    if not holds:
        return None
    return now if since is None else since


def _age(since: float | None, now: float) -> float | None:
    return None if since is None else round(now - since, 3)


def _blind(view: View, silent: int, signal: str) -> str:
    if view.signals is None:
        return "no gateway tells of this pool"
    return f"{silent} of {len(view.ready)} replicas do not say their {signal}"
