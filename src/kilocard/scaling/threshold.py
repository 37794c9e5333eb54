"""One more when replicas have been busy for a while, one fewer when they have been idle for long."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kilocard.scaling.decision import Numbers, Reason
from kilocard.scaling.proposal import Proposal
from kilocard.scaling.saved import number
from kilocard.scaling.view import View
from kilocard.scaling.watched import watch
from kilocard.spec.scaling import ScalingSpec


class Threshold:
    """Two conditions, each with the time since when it holds without a break."""

    def __init__(self, spec: ScalingSpec) -> None:
        self._spec = spec
        self._watch = watch(spec.signal, spec.up.threshold)
        self._above_since: float | None = None
        self._below_since: float | None = None

    def propose(self, now: float, view: View) -> Proposal:
        up, down = self._spec.up, self._spec.down
        seen = self._watch.look(now, view)
        above = seen.low > up.threshold
        # where most of them crash, so would another one
        broken = len(view.failing) > max(1, view.have // 2)
        self._above_since = _since(self._above_since, above and not seen.unsettled and not broken, now)
        self._below_since = _since(self._below_since, not seen.doubt and seen.high <= down.threshold, now)
        numbers: Numbers = {
            "signal": self._spec.signal, "value": round(seen.low, 3), "possible": round(seen.high, 3),
            "held": view.signals.held if view.signals is not None else None,
            "above_for_s": _age(self._above_since, now), "below_for_s": _age(self._below_since, now),
        }  # fmt: skip
        have = view.have
        if self._above_since is not None:
            sentence = (
                f"{seen.said}, more than {up.threshold:g} for {now - self._above_since:.0f} of {up.for_seconds:g} s"
            )
            if now - self._above_since < up.for_seconds:
                return Proposal(have, Reason.WAITING, sentence, numbers)
            return Proposal(have + up.step, Reason.ABOVE, sentence, numbers)
        if above and broken:
            fail = f"{len(view.failing)} of {have} replicas fail, and another one would as well"
            return Proposal(have, Reason.LIMITED, f"{seen.said}; {fail}", numbers)
        if above:
            return Proposal(have, Reason.WAITING, f"{seen.said}; a replica is on its way that may change it", numbers)
        if seen.doubt and seen.low <= down.threshold:
            return Proposal(have, Reason.BLIND, f"{seen.doubt}: nothing is removed", numbers)
        if self._below_since is not None and have:
            held_s = now - self._below_since
            sentence = f"{seen.said}, at most {down.threshold:g} for {held_s:.0f} of {down.for_seconds:g} s"
            if held_s < down.for_seconds:
                return Proposal(have, Reason.WAITING, sentence, numbers)
            # the last replica goes only when the pool is idle
            return Proposal(max(min(have, 1), have - down.step), Reason.BELOW, sentence, numbers)
        return Proposal(have, Reason.STEADY, f"{seen.said}, between the bounds", numbers)

    def changed(self, now: float) -> None:
        self._above_since = self._below_since = None

    def unseen(self) -> None:
        self._above_since = self._below_since = None

    def snapshot(self, now: float) -> dict[str, Any]:
        return {"above_for_s": _age(self._above_since, now), "below_for_s": _age(self._below_since, now)}

    def restore(self, now: float, saved: Mapping[str, Any]) -> None:
        above, below = number(saved.get("above_for_s")), number(saved.get("below_for_s"))
        self._above_since = None if above is None else now - above
        self._below_since = None if below is None else now - below


def _since(since: float | None, holds: bool, now: float) -> float | None:
    if not holds:
        return None
    return now if since is None else since


def _age(since: float | None, now: float) -> float | None:
    return None if since is None else round(now - since, 3)
