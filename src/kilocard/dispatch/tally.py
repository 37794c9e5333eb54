"""What came for one pool and what became of it, counted as it happens: the raw half of core.signals.PoolSignals."""

from __future__ import annotations

from bisect import bisect_left

from kilocard.core.signals import BOUNDS_S, BUCKETS


class Tally:
    """Counts from the start of the process; they outlive replicas and changes of the cluster file.

    The dispatcher adds to the fields itself where that is once for each request, since a call costs more than the sum.
    """

    __slots__ = ("arrived", "finished", "first_token", "hold", "output_tokens", "prompt_tokens", "refused")

    def __init__(self) -> None:
        #: requests whose weights chose this pool, and their prompts' tokens
        self.arrived = 0
        self.prompt_tokens = 0
        #: answers that ended on a replica of this pool, and their tokens as far as engines told them
        self.finished = 0
        self.output_tokens = 0
        #: requests that were turned away for want of a place
        self.refused = 0
        #: by duration: waits in the gateway that have ended, first tokens of streams since their arrival
        self.hold = [0] * BUCKETS
        self.first_token = [0] * BUCKETS

    def held(self, seconds: float) -> None:
        """A wait in the gateway has ended."""
        self.hold[bisect_left(BOUNDS_S, seconds)] += 1
