"""When somebody last asked for a pool: for scaling to zero, and up again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kilocard.core.signals import PoolSignals, ReplicaSignals
from kilocard.scaling.saved import number


class Asked:
    """Counters tell of requests that came and went between two looks; a gauge alone would miss a short one."""

    def __init__(self) -> None:
        self._last: PoolSignals | None = None
        self._at: float | None = None
        #: somebody asks now: a request waits in the gateway, or came since the last look
        self.now = False

    def look(self, now: float, signals: PoolSignals | None, replicas: Sequence[ReplicaSignals]) -> None:
        """At every look. What is not known counts as a request just now."""
        self.now = False
        if self._at is None:
            self._at = now
        if signals is None:
            self._at = now
            return
        last = self._last
        self._last = signals
        known = last is not None and last.sources == signals.sources
        if last is not None and known:
            self.now = signals.arrived > last.arrived or signals.refused > last.refused
        self.now = self.now or signals.held > 0
        runs = signals.in_flight > 0 or any((each.running or 0.0) + (each.waiting or 0.0) > 0 for each in replicas)
        if self.now or runs or not known:
            self._at = now

    def idle_s(self, now: float) -> float:
        """For so long nobody asked."""
        return now - self._at if self._at is not None else 0.0

    def snapshot(self, now: float) -> dict[str, Any]:
        """As JSON data. The counters are kept: whether anybody came in the meantime can be told from them."""
        last = self._last
        return {"idle_s": round(self.idle_s(now), 3)} | (
            {} if last is None else {"sources": list(last.sources), "arrived": last.arrived, "refused": last.refused}
        )

    def restore(self, now: float, saved: Mapping[str, Any]) -> None:
        """`now`: when that was saved. Without counters that can be compared the next look is as the first one."""
        idle, arrived, refused = (number(saved.get(key)) for key in ("idle_s", "arrived", "refused"))
        sources = saved.get("sources")
        if idle is not None and arrived is not None and refused is not None and isinstance(sources, list):
            self._at = now - idle
            self._last = PoolSignals("", sources=tuple(map(str, sources)), arrived=arrived, refused=refused)
