"""How fast replicas make first tokens, each beside the usual one of its pool."""

from __future__ import annotations

from math import log2

from kilocard.routing.first_token_line import FirstTokenLine

#: share of the newest first token in a replica's mean
NEW = 0.02
#: a replica's own speed counts once so many first tokens of it were measured, in steps of √2, with hysteresis: what is
#: within noise of the pool's is the pool's
MEASURED = 64
STICKY = 0.75
#: one first token counts as at most 2³ times slower or faster; and none as quicker than this (seconds)
CLIP = 3.0
LEAST_SECONDS = 1e-4


class Speed:
    """Of one replica."""

    __slots__ = ("factor", "measured", "slowness")

    def __init__(self) -> None:
        #: seconds of its own per second of the pool's usual replica
        self.factor = 1.0
        #: log₂ of how many times as long first tokens take here as the pool's line says, and how many were measured
        self.slowness = 0.0
        self.measured = 0


class Speeds:
    """Of one pool. Means are of logarithms, since queues make some first tokens very late."""

    __slots__ = ("_usual", "line")

    def __init__(self) -> None:
        self.line = FirstTokenLine()
        #: the pool's own slowness: as its line is of seconds, not of logarithms, it is not 0
        self._usual = 0.0

    def observe(self, speed: Speed, replicas: int, ahead: int, seconds: float) -> None:
        """A first token came there `seconds` after `ahead` tokens had to be computed; the pool has so many replicas."""
        ratio = log2(max(seconds, LEAST_SECONDS) / self.line.seconds(ahead))
        self.line.add(ahead, seconds)
        ratio = min(CLIP, max(-CLIP, ratio))
        # as far back as its replicas' are: each of these hears of its share of the requests
        self._usual += NEW / replicas * (ratio - self._usual)
        speed.measured += 1
        speed.slowness += max(NEW, 1.0 / speed.measured) * (ratio - speed.slowness)
        steps = 2.0 * (speed.slowness - self._usual)
        if speed.measured >= MEASURED and abs(steps - 2.0 * log2(speed.factor)) > STICKY:
            speed.factor = 2.0 ** (round(steps) / 2.0)
