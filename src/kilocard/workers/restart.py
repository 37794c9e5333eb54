"""When a worker that died is started again. Pure."""

from __future__ import annotations

#: seconds: the first restart comes at once, then after the second, doubled up to the last
FIRST, LAST = 0.5, 30.0
#: who has lived that long starts with a clean slate
PROVEN = 60.0
#: deaths in a row that are called a crash loop
LOOP = 4


class Restarts:
    """One slot's history. Times are seconds."""

    __slots__ = ("in_a_row", "total")

    def __init__(self) -> None:
        #: deaths since one lived for PROVEN seconds
        self.in_a_row = 0
        self.total = 0

    @property
    def looping(self) -> bool:
        return self.in_a_row >= LOOP

    def died(self, lived: float) -> float:
        """A worker has died after `lived` seconds: how long to wait before the next."""
        self.in_a_row = 1 if lived >= PROVEN else self.in_a_row + 1
        self.total += 1
        return 0.0 if self.in_a_row == 1 else min(LAST, FIRST * 2.0 ** min(self.in_a_row - 2, 30))
