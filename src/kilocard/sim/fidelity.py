"""How true is the engine model? A measured load beside the same requests played on a profile: throughput, and TTFT
and time per output token at the median and at the 95th percentile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from typing import Unpack

from kilocard.core.statistics import percentiles
from kilocard.perf.profile import Profile
from kilocard.perf.seen_steps import Stream
from kilocard.sim.limits import Limits
from kilocard.sim.prediction import Measurement, replayed

_SHARES = (0.5, 0.95)
#: a closed loop is played so often
ROUNDS = 8


@dataclass(frozen=True, slots=True)
class Figures:
    """Seconds, and tokens a second."""

    output_tokens_per_s: float
    ttft_p50_s: float
    ttft_p95_s: float
    tpot_p50_s: float
    tpot_p95_s: float

    def errors(self, seen: Figures) -> tuple[float, ...]:
        """self / seen − 1, in the order of the fields."""
        return tuple(mine / other - 1 for mine, other in zip(astuple(self), astuple(seen), strict=True))


@dataclass(frozen=True, slots=True)
class Played:
    """Streams, and the window of them that counts."""

    streams: Sequence[Stream]
    started_s: float
    ended_s: float


def figures(runs: Sequence[Played]) -> Figures:
    """Tokens that came within the windows; latencies of the requests sent in them. ValueError when there is none."""
    tokens = 0
    ttft: list[float] = []
    tpot: list[float] = []
    for run in runs:
        for stream in run.streams:
            times = stream.tokens_s
            tokens += sum(run.started_s <= at_s <= run.ended_s for at_s in times)
            if times and run.started_s <= stream.sent_s <= run.ended_s:
                ttft.append(times[0] - stream.sent_s)
                if len(times) > 1:
                    tpot.append((times[-1] - times[0]) / (len(times) - 1))
    seconds = sum(run.ended_s - run.started_s for run in runs)
    return Figures(tokens / seconds, *percentiles(ttft, _SHARES), *percentiles(tpot, _SHARES))


def measured(measurement: Measurement) -> Figures:
    """What was seen. An open loop's throughput is that of all its requests, from the first arrival to the last token:
    an engine that falls behind needs longer for the same tokens."""
    if measurement.concurrency is None:
        return figures([_whole(measurement.streams)])
    return figures([Played(measurement.streams, measurement.started_s, measurement.ended_s)])


def modelled(measurement: Measurement, profile: Profile, **limits: Unpack[Limits]) -> Figures:
    """The same of the same requests on `profile`. Raises EngineError when it has no room for one of them.

    The engine has a prefix cache unless `limits` say otherwise. Where the server said of some prompts that they were
    cached, these numbers take its place, and what a preempted request left in it is not found again.

    In a closed loop it is chance which prompts meet, and a small part of a step moves all that comes after. So it is
    played several times, beginning with another request each time, and all of it is looked at together.
    """
    limits = {"prefix_cache": not any(stream.cached for stream in measurement.streams), **limits}
    if measurement.concurrency is None:
        return figures([_whole(replayed(measurement, profile, **limits)[0])])
    count = len(measurement.streams)
    begins = sorted({count * part // ROUNDS for part in range(ROUNDS)})
    return figures([Played(*replayed(_from(measurement, begin), profile, **limits)) for begin in begins])


def _from(measurement: Measurement, begin: int) -> Measurement:
    """A closed loop's requests, another one first."""
    streams, outputs = measurement.streams, measurement.asked_output
    return replace(
        measurement, streams=streams[begin:] + streams[:begin], asked_output=outputs[begin:] + outputs[:begin]
    )


def _whole(streams: Sequence[Stream]) -> Played:
    last_s = max(stream.tokens_s[-1] for stream in streams if stream.tokens_s)
    return Played(streams, min(stream.sent_s for stream in streams), last_s)
