"""Sessions: a later turn is asked when the one before has been answered, and thought about."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from kilocard.workload.request import WorkloadRequest


class Turns:
    """Requests are known by their places. Those without a session, and first turns, come at their own times."""

    def __init__(self, requests: Sequence[WorkloadRequest]) -> None:
        self._requests = requests
        self._later: dict[str, deque[int]] = {}

    def first(self) -> Iterator[tuple[float, int]]:
        """(time, place) in order of time, of all that wait for no other request."""
        begun: set[str] = set()
        for place, request in enumerate(self._requests):
            if (session := _line(request)) is not None:
                if session in begun:
                    continue
                begun.add(session)
            yield request.at_s, place

    def ended(self, now: float, place: int) -> tuple[float, int] | None:
        """The turn that follows in this request's session, and when it is asked. However the one before ended."""
        session = _line(self._requests[place])
        if session is None:
            return None
        if not self._later:
            for later, request in enumerate(self._requests):
                if (named := _line(request)) is not None:
                    self._later.setdefault(named, deque()).append(later)
        waiting = self._later[session]
        waiting.popleft()
        if not waiting:
            return None
        following = self._requests[waiting[0]]
        return max(following.at_s, now + following.think_s), waiting[0]


def _line(request: WorkloadRequest) -> str | None:
    """The session in which it waits for its turn."""
    return request.session if request.waits else None
