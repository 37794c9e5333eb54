"""Requests that wait in the gateway: late binding beats a deep engine queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kilocard.dispatch.config import PRIORITIES
from kilocard.dispatch.fair import Line
from kilocard.dispatch.request import LiveRequest

#: the class that is served last
LAST = len(PRIORITIES) - 1


def rank(request: LiveRequest) -> int:
    """Its class: 0 is served first. Numbers outside the closed list count as its ends."""
    return min(max(request.asked.priority, 0), LAST)


class HoldQueue:
    """One model's held requests. `lines` are the priority classes, strictly one before the next; `parked` are retries
    that can't take just any replica (or not yet) and must not block a line."""

    __slots__ = ("lines", "parked", "waiting")

    def __init__(self) -> None:
        self.lines = tuple(Line() for _ in PRIORITIES)
        #: requests in the lines
        self.waiting = 0
        self.parked: dict[int, LiveRequest] = {}

    def __len__(self) -> int:
        return self.waiting + len(self.parked)

    def requests(self) -> Iterator[LiveRequest]:
        """All that wait, in no order."""
        for line in self.lines:
            yield from line.requests()
        yield from self.parked.values()

    def first(self) -> tuple[int, Line]:
        """The class whose turn it is, and its line; only while somebody waits in the lines."""
        for place, line in enumerate(self.lines):
            if line.count:
                return place, line
        raise ValueError("nobody waits")

    def line(self, request: LiveRequest) -> Line:
        return self.lines[rank(request)]

    def join(self, request: LiveRequest) -> None:
        self.line(request).join(request)
        self.waiting += 1

    def drop(self, request: LiveRequest) -> bool:
        """Take a request out; False if it is not here."""
        if self.parked.pop(request.id, None) is not None:
            return True
        if self.line(request).drop(request):
            self.waiting -= 1
            return True
        return False

    def who_makes_way(self, newcomer: LiveRequest) -> LiveRequest:
        """The queue is full and one more comes: who has to go, the newcomer itself if nobody has less right to stay.

        Of the lowest class, the newest request of the tenant that has most there: so no tenant fills the queue when
        others want in. Retries stay, and may take the place of what has not been sent yet.
        """
        mine = rank(newcomer)
        for place in range(LAST, mine - 1, -1):
            line = self.lines[place]
            flow = line.longest()
            if flow is None:
                continue
            if place == mine and not newcomer.attempts:
                with_me = line.length(newcomer.asked.tenant) + 1
                if with_me >= len(flow.requests):
                    return newcomer
            return flow.requests[next(reversed(flow.requests))]
        return newcomer

    def by_tenant(self) -> Counter[str]:
        """Held requests of each tenant. O(tenants + retries)."""
        counts = Counter(request.asked.tenant for request in self.parked.values())
        for line in self.lines:
            counts.update(line.by_tenant())
        return counts

    def by_priority(self) -> dict[str, int]:
        """Held requests of each class, by its name."""
        counts = {name: line.count for name, line in zip(PRIORITIES, self.lines, strict=True)}
        for request in self.parked.values():
            counts[PRIORITIES[rank(request)]] += 1
        return counts
