"""Which of many flows is the longest, without a scan."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kilocard.dispatch.turns import Flow


class Lengths:
    """Flows by the number of their requests. Lengths change by one, so the longest is found by one step: O(1) each.

    Among the longest, the one that came to this length last.
    """

    __slots__ = ("_at", "most")

    def __init__(self) -> None:
        #: OrderedDicts, since a dict that loses its first keys finds its next one ever more slowly
        self._at: dict[int, OrderedDict[str, Flow]] = {}
        #: length of the longest; 0: there is none
        self.most = 0

    def grew(self, flow: Flow) -> None:
        """The flow has one request more."""
        length = len(flow.requests)
        self._leave(flow, length - 1)
        self._enter(flow, length)
        if length > self.most:
            self.most = length

    def shrank(self, flow: Flow) -> None:
        """The flow has one request less."""
        length = len(flow.requests)
        self._leave(flow, length + 1)
        self._enter(flow, length)
        if self.most not in self._at:  # it was the only one of the longest, and is now one shorter
            self.most -= 1

    def longest(self) -> Flow | None:
        if not self.most:
            return None
        flows = self._at[self.most]
        return flows[next(reversed(flows))]

    def _enter(self, flow: Flow, length: int) -> None:
        if length:
            self._at.setdefault(length, OrderedDict())[flow.name] = flow

    def _leave(self, flow: Flow, length: int) -> None:
        if length:
            flows = self._at[length]
            del flows[flow.name]
            if not flows:
                del self._at[length]
