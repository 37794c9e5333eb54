"""The client watches itself: were its numbers the server's, or its own?

Three things can falsify a measurement, and each is measured rather than guessed:

- *late*: how long after its time the client acted: a request sent after its intended time, a freed slot taken up
  again. In an open loop that stands in the latencies, which count from the intended time: on average in their mean, and
  its tail in their tail. In a closed loop latencies count from when the slot is taken up, and lateness only lowers the
  load: by its mean over the time that a request takes. A heartbeat each 10 ms tells how late it wakes up where nothing
  is sent.
- *blur*: how far off a time of arrival may be. With the kernel's receive stamp the last event of a read is exact; the
  events before it (the client was not back in time to read them apart) may have come any time since the socket was
  last looked at. Without kernel stamps every event has the time from one look to the next as its blur.
- *starved*: of the time in which the client wanted a processor, the share in which it had to wait for one.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kilocard.bench.point import ClientHealth
from kilocard.bench.record import RequestRecord
from kilocard.core import latency

#: seconds between heartbeats
BEAT_S = 0.01
#: of one core: beyond it, queueing in the client itself begins
MAX_CPU_SHARE = 0.9
#: blur may be this share of the median gap between tokens, and in an open loop mean lateness of the median TTFT: as
#: much as TTFT, TPOT and e2e may disagree by, elsewhere
MAX_SHARE = latency.AGREEMENT
#: mean lateness in a closed loop may be this share of the median e2e: throughput is lower by it
MAX_IDLE_SHARE = 0.02
#: the 99th percentile of lateness in an open loop may be this share of the TTFT's: tails seldom fall together
MAX_TAIL_SHARE = 0.1
#: below this nothing is wrong, however short the times that are measured
FINE_S = 0.001
#: waiting for a processor for more than this share is the reason to name. It is no fault by itself: a client that
#: needs 1 % of a core beside an engine on the same cores waits for more than half of that, and its stamps are right
MAX_STARVED_SHARE = 0.3


class Watch:
    """Start it with the measurement, in the thread that drives the load; `health()` at the end, in the same thread."""

    def __init__(self, slept_s: float = 0.0) -> None:
        self.late = array("d")
        self.beats = array("d")
        #: only those above 0; `arrivals` counts all
        self.blur = array("d")
        self.arrivals = 0
        #: arrivals that shared a read with a later one
        self.joined = 0
        self.unsent = 0
        #: what the loop's count of its sleep was at the start
        self._slept_s = slept_s
        self._cpu_s = time.thread_time()
        self._wall_s = time.monotonic()
        self._delay_s = _run_delay_s()

    def arrived(self, events: int, blur_of_last_s: float, blur_s: float) -> None:
        """`events` token arrivals out of one read."""
        self.arrivals += events
        if blur_of_last_s > 0.0:
            self.blur.append(blur_of_last_s)
        if events > 1:
            self.joined += events - 1
            if blur_s > 0.0:
                self.blur.extend([blur_s] * (events - 1))

    def health(self, slept_s: float, records: Sequence[RequestRecord], *, open_loop: bool) -> ClientHealth:
        """`slept_s`: seconds for which the loop has slept since nothing was to do, counted like the start's."""
        wall = max(1e-9, time.monotonic() - self._wall_s)
        cpu = time.thread_time() - self._cpu_s
        delay = _run_delay_s()
        if delay is not None and self._delay_s is not None:
            waited = delay - self._delay_s
        else:  # no schedstat: what neither slept nor ran was waiting
            waited = max(0.0, wall - (slept_s - self._slept_s) - cpu)
        beat = percentile(self.beats, len(self.beats), 0.99)
        acted = self.late or self.beats
        late = percentile(acted, len(acted), 0.99)
        # One wrong time in a hundred or more makes one wrong gap at either end, and moves no percentile that is given.
        but_one = sorted(self.blur)[:-1]
        blur, worst_blur = (percentile(but_one, self.arrivals - 1, share) for share in (0.99, 0.999))
        if self.joined > max(1, 0.001 * self.arrivals):  # they may also have met while the client was waking up
            worst_blur = max(worst_blur, beat)
        health = ClientHealth(
            cpu_share=cpu / wall,
            lag_p99_s=max(late, blur),
            late_mean_s=statistics.fmean(acted) if acted else 0.0,
            late_p99_s=late,
            blur_p999_s=worst_blur,
            starved_share=waited / (waited + cpu) if waited + cpu > 0 else 0.0,
        )
        health.limited = judge(health, self.unsent, falsified(records, open_loop=open_loop))
        return health


class Falsified(NamedTuple):
    """Seconds; 0 where nothing was measured."""

    #: how late the client may be on average, and at the 99th percentile
    mean_s: float
    tail_s: float
    #: how uncertain a time of arrival may be
    blur_s: float


def falsified(records: Sequence[RequestRecord], *, open_loop: bool) -> Falsified:
    """The bounds on lateness and blur, from what they would make wrong; never below FINE_S."""
    whole = [record for record in records if record.error is None]
    if not whole:  # no numbers, so none that are false: why nothing was answered is what to say
        return Falsified(math.inf, math.inf, math.inf)
    blur = MAX_SHARE * _median([statistics.fmean(record.gaps_s) for record in whole if record.gaps_s])
    if open_loop:
        ttft = [record.ttft_s for record in whole if record.ttft_s is not None]
        mean, tail = MAX_SHARE * _median(ttft), MAX_TAIL_SHARE * percentile(ttft, len(ttft), 0.99)
    else:
        mean, tail = MAX_IDLE_SHARE * _median([record.e2e_s for record in whole if record.e2e_s is not None]), math.inf
    return Falsified(max(FINE_S, mean), max(FINE_S, tail), max(FINE_S, blur))


def judge(health: ClientHealth, unsent: int, bound: Falsified) -> str | None:
    """Why these numbers can't be trusted, or None."""
    mean, late, blur = health.late_mean_s, health.late_p99_s, health.blur_p999_s
    if unsent:
        return f"{unsent} requests could not be sent: all of the client's sockets were in use"
    if health.cpu_share > MAX_CPU_SHARE:
        return f"the client used {health.cpu_share:.0%} of its core: run it on a faster one, or spread the load"
    if mean > bound.mean_s or late > bound.tail_s:
        acted = f"acted {mean * 1e3:.1f} ms late on average, {late * 1e3:.1f} ms at p99"
    elif blur > bound.blur_s:
        acted = f"reads too slowly: times of arrival are uncertain by {blur * 1e3:.1f} ms (p99.9)"
    else:
        return None
    if health.starved_share > MAX_STARVED_SHARE:
        return (
            f"the client waited for a processor {health.starved_share:.0%} of the time that it needed one, "
            f"and {acted}: give it a core of its own"
        )
    return f"the client {acted}: it has more to do than one core can"


def _median(values: list[float]) -> float:
    return statistics.median(values) if values else 0.0


def percentile(values: Iterable[float], count: int, share: float) -> float:
    """Nearest rank among `count` values, of which those not given are 0."""
    ordered = sorted(values)
    below = int(share * count) - (count - len(ordered))
    return ordered[min(below, len(ordered) - 1)] if ordered and below >= 0 else 0.0


def _run_delay_s() -> float | None:
    """Seconds that this thread has spent runnable but not running; None where the kernel does not say."""
    try:
        descriptor = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
    except OSError:
        return None
    try:
        fields = os.read(descriptor, 128).split()
    finally:
        os.close(descriptor)
    # All zero: compiled in but switched off.
    return int(fields[1]) * 1e-9 if len(fields) == 3 and fields[0] != b"0" else None
