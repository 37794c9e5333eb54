"""What a gateway says of itself: its histograms between two moments, and /state looked at while it works."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping
from typing import Any

from benchmarks.thousand.client import spread
from benchmarks.thousand.fleet import Gateway

_BUCKET = re.compile(r'^kilocard_decision_seconds_bucket\{le="([^"]+)"\} (\S+)$', re.MULTILINE)


def decisions(page: bytes) -> dict[float, float]:
    """Decisions by the upper bound of their time in seconds, cumulative."""
    return {float(bound): float(count) for bound, count in _BUCKET.findall(page.decode())}


def at_most(before: Mapping[float, float], after: Mapping[float, float], share: float) -> float | None:
    """The bucket's bound that so many of the decisions in between stayed below, in seconds. None: there were none."""
    counts = {bound: after[bound] - before.get(bound, 0.0) for bound in after}
    total = max(counts.values(), default=0.0)
    if not total:
        return None
    return min(bound for bound, count in counts.items() if count >= share * total)


class Looks:
    """Asks for /state now and then, as a dashboard does."""

    def __init__(self, gateway: Gateway, every_s: float) -> None:
        self._gateway = gateway
        self._every_s = every_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.took_s: list[float] = []
        self.ages_s: list[float] = []
        self.states: dict[str, int] = {}
        self.in_flight: dict[int, int] = {}
        self.bytes = 0

    def __enter__(self) -> Looks:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stop.wait(self._every_s):
            began = time.perf_counter()
            page = self._gateway.get("/state")
            self.took_s.append(time.perf_counter() - began)
            self.bytes = len(page)
            self._take(page)

    def _take(self, page: bytes) -> None:
        import msgspec

        for replica in msgspec.json.decode(page)["replicas"]:
            self.states[replica["state"]] = self.states.get(replica["state"], 0) + 1
            self.in_flight[replica["in_flight"]] = self.in_flight.get(replica["in_flight"], 0) + 1
            if replica["age_s"] is not None:
                self.ages_s.append(replica["age_s"])

    def found(self) -> dict[str, Any]:
        looks = len(self.took_s)
        return {
            "looks": looks,
            "state_s": spread(self.took_s),
            "state_bytes": self.bytes,
            "age_s": spread(self.ages_s),
            "states": {name: count / looks for name, count in self.states.items()} if looks else {},
            "in_flight": {count: looked / sum(self.in_flight.values()) for count, looked in self.in_flight.items()},
        }
