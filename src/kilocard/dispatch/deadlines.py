"""When holds end."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from kilocard.dispatch.request import LiveRequest


class Deadlines:
    """When holds end, over all models. Lazy: whoever left early is skipped; compacted, so memory stays flat."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, request: LiveRequest, live: dict[int, LiveRequest], held: int) -> None:
        if len(self._heap) > 2 * held + 64:
            self._heap = [entry for entry in self._heap if _waits(live.get(entry[1]))]
            heapify(self._heap)
        heappush(self._heap, (request.hold_until, request.id))

    def due(self, now: float, live: dict[int, LiveRequest]) -> list[LiveRequest]:
        """Held requests whose time is over; each comes once."""
        over: dict[int, LiveRequest] = {}  # a request that was held twice has two entries
        heap = self._heap
        while heap and heap[0][0] <= now:
            request = live.get(heappop(heap)[1])
            if request is not None and request.replica is None:
                over[request.id] = request
        return list(over.values())


def _waits(request: LiveRequest | None) -> bool:
    return request is not None and request.replica is None
