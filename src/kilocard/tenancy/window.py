"""What was counted in the last minute, so that no 60 seconds hold more than they may."""

from __future__ import annotations

from typing import Final

from kilocard.tenancy.limits import Standing

#: seconds
LENGTH: Final = 60
#: the second that runs, and those that may still hold something less than LENGTH old
_SLOTS: Final = LENGTH + 1


class Window:
    """A sliding minute of one-second slots. O(1) amortised; 61 numbers, however much is counted.

    A slot leaves when all of it is at least 60 s old, up to a second later than its first charge could: so in any 60 s,
    wherever they begin, no more was let in than the limit. Seconds are whole, of a clock that only goes forward; should
    it go back, charges land in the newest slot.
    """

    __slots__ = ("_newest", "_slots", "second", "total")

    def __init__(self) -> None:
        self._slots = [0] * _SLOTS
        #: the newest second that has been seen; what is added lands here
        self.second = 0
        #: what the window holds
        self.total = 0
        self._newest = 0

    def turn(self, second: int) -> None:
        """Forget what is over at `second`."""
        gone = second - self.second
        if gone <= 0:
            return
        if not self.total:
            pass
        elif gone >= _SLOTS:
            self._slots = [0] * _SLOTS
            self.total = 0
        else:
            slots = self._slots
            for place in range(self.second + 1, second + 1):
                self.total -= slots[place % _SLOTS]
                slots[place % _SLOTS] = 0
        self.second = second

    def add(self, count: int) -> None:
        """Charge now: in the second of the last `turn`."""
        self._slots[self.second % _SLOTS] += count
        self.total += count
        self._newest = self.second

    def give_back(self, second: int, count: int) -> None:
        """Part of what was added at `second`, if that is still here (what has left counts no more anyway)."""
        if second > self.second - _SLOTS:
            self._slots[second % _SLOTS] -= count
            self.total -= count

    def at(self, second: int) -> int:
        """What is here of that second, one of the last minute."""
        return self._slots[second % _SLOTS]

    def wait(self, over: int, now: float) -> float:
        """Seconds until `over` of what is here has left by itself. `over` is at most `total`."""
        for second in range(self.second - LENGTH, self.second + 1):
            over -= self._slots[second % _SLOTS]
            if over <= 0:
                return max(0.0, second + _SLOTS - now)
        return float(_SLOTS)

    def standing(self, limit: int, now: float) -> Standing:
        """How a limit of what may be here stands. `now`: within the second of the last `turn`."""
        used = self.total
        # Half the cost of Standing(…), and there are two of them for each request.
        return tuple.__new__(
            Standing,
            (limit, limit - used if used < limit else 0, self._newest + _SLOTS - now if used else 0.0),
        )
