"""What becomes of each request, in columns: a million of them fit in a hundred megabytes."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from math import nan

from kilocard.core.errors import KilocardError, UpstreamError
from kilocard.sim.flight import Flight
from kilocard.sim.server import Server
from kilocard.workload.request import WorkloadRequest

#: how requests end; places in `Collector.ends`
UNFINISHED, COMPLETED, REJECTED, TOO_LONG, FAILED, CANCELLED, NOT_ASKED = range(7)
#: a request that no replica can hold is rejected, but says nothing of how busy they are
END_NAMES = ("unfinished", "completed", "rejected", "rejected", "failed", "cancelled", "not_asked")


class Collector:
    """By the request's place in the workload; times in seconds, NaN where it did not happen.

    `over` is told of every end.
    """

    def __init__(self, requests: Sequence[WorkloadRequest], over: Callable[[float, int], None]) -> None:
        count = len(requests)
        self.requests = requests
        self._over = over
        #: when it reached a gateway; later than its at_s only within a session
        self.arrived_s = array("d", [nan]) * count
        self.first_s = array("d", [nan]) * count
        self.end_s = array("d", [nan]) * count
        self.ends = bytearray([NOT_ASKED]) * count
        self.attempts = bytearray(count)
        #: error codes of those that were rejected or failed
        self.codes: Counter[str] = Counter()
        #: requests and tokens that each replica finished
        self.by_replica: dict[str, list[int]] = {}
        #: replicas that left before the end
        self.left: list[Server] = []
        self.ended_s = 0.0

    def arrived(self, now: float, id: int) -> None:
        self.arrived_s[id] = now
        self.ends[id] = UNFINISHED

    def sent(self, flight: Flight, attempt: int) -> None:
        self.attempts[flight.id] = min(attempt, 255)

    def first(self, now: float, flight: Flight) -> None:
        self.first_s[flight.id] = now

    def finished(self, now: float, flight: Flight, server: Server) -> None:
        tally = self.by_replica.get(server.id)
        if tally is None:
            tally = self.by_replica[server.id] = [0, 0]
        tally[0] += 1
        tally[1] += flight.request.output_tokens
        self._end(now, flight.id, COMPLETED)

    def too_long(self, now: float, flight: Flight) -> None:
        """The engine has no room for it, ever."""
        self.codes["too_long"] += 1
        self._end(now, flight.id, TOO_LONG)

    def refused(self, now: float, flight: Flight, error: KilocardError) -> None:
        """Failed: replicas were tried, or the answer broke off. Rejected: the gateway had no place for it."""
        self.codes[error.code] += 1
        self._end(now, flight.id, FAILED if isinstance(error, UpstreamError) else REJECTED)

    def cancelled(self, now: float, flight: Flight) -> None:
        self._end(now, flight.id, CANCELLED)

    def _end(self, now: float, id: int, how: int) -> None:
        self.end_s[id] = now
        self.ends[id] = how
        self._over(now, id)

    def gone(self, server: Server) -> None:
        self.left.append(server)

    def close(self, now: float) -> None:
        self.ended_s = now

    def counts(self) -> dict[str, int]:
        """Requests by how they ended; they add up to all of them."""
        found = dict.fromkeys(END_NAMES, 0)
        for how, name in enumerate(END_NAMES):
            found[name] += self.ends.count(how)
        return found
