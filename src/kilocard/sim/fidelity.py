"""How true is the engine model? A measured load beside the same requests played on a profile: throughput, and TTFT
and time per output token at the median and at the 95th percentile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
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
class _Run:
    #: all whose tokens count, and of them those whose latencies do
    streams: Sequence[Stream]
    counted: Sequence[Stream]
    started_s: float
    ended_s: float


def measured(measurement: Measurement) -> Figures:
    """What was seen. An open loop's throughput is that of all its requests, from the first arrival to the last token:
    an engine that falls behind needs longer for the same tokens.

    Raises ValueError where no request was answered with more than one token.
    """
    streams = measurement.streams
    counted = [streams[place] for place in _counted(measurement)]
    if measurement.concurrency is None:
        return _figures([_whole(streams, counted)])
    return _figures([_Run(streams, counted, measurement.started_s, measurement.ended_s)])


@dataclass(frozen=True, slots=True)
class Modelled:
    figures: Figures
    #: within the window; a mean where it was played several times
    preemptions: float


def modelled(measurement: Measurement, profile: Profile, **limits: Unpack[Limits]) -> Modelled:
    """The same of the same requests on `profile`. Raises EngineError when it has no room for one of them.

    The engine has a prefix cache unless `limits` say otherwise. Where the server said of some prompts that they were
    cached, these numbers take its place, and what a preempted request left in it is not found again.

    In a closed loop it is chance which prompts meet, and a small part of a step moves all that comes after. So it is
    played several times, after other requests each time, and all of it is looked at together.
    """
    limits = {"prefix_cache": not any(stream.cached for stream in measurement.streams), **limits}
    count = len(measurement.streams)
    rounds = ROUNDS if measurement.concurrency else 1
    runs = []
    preemptions = 0
    begins = sorted({count * part // rounds for part in range(rounds)})
    for begin in begins:
        played, warm = replayed(measurement, profile, begin=begin, **limits)
        streams = [each.stream for each in played]
        counted = [streams[warm + place] for place in _counted(measurement)]
        runs.append(_whole(streams, counted))
        if measurement.concurrency is not None:
            opens = next(
                place for place, each in enumerate(measurement.streams) if each.sent_s >= measurement.started_s
            )
            ended = streams[-1].sent_s if measurement.cut_off else runs[-1].ended_s
            runs[-1] = _Run(streams, counted, streams[warm + opens].sent_s, ended)
        begun_s, ended_s = runs[-1].started_s, runs[-1].ended_s
        preemptions += sum(begun_s <= at_s <= ended_s for each in played for at_s in each.preempted_s)
    return Modelled(_figures(runs), preemptions / len(begins))


def _counted(measurement: Measurement) -> list[int]:
    """Places of the requests whose latencies are looked at, on both sides: sent within the window, answered whole."""
    return [
        place
        for place, (stream, output) in enumerate(zip(measurement.streams, measurement.asked_output, strict=True))
        if len(stream.tokens_s) == output > 1
        and (measurement.concurrency is None or stream.sent_s >= measurement.started_s)
    ]


def _figures(runs: Sequence[_Run]) -> Figures:
    tokens = sum(
        run.started_s <= at_s <= run.ended_s for run in runs for stream in run.streams for at_s in stream.tokens_s
    )
    seconds = sum(run.ended_s - run.started_s for run in runs)
    counted = [(stream.sent_s, stream.tokens_s) for run in runs for stream in run.counted]
    ttft = percentiles([times[0] - sent_s for sent_s, times in counted], _SHARES)
    tpot = percentiles([(times[-1] - times[0]) / (len(times) - 1) for _, times in counted], _SHARES)
    return Figures(tokens / seconds, *ttft, *tpot)


def _whole(streams: Sequence[Stream], counted: Sequence[Stream]) -> _Run:
    last_s = max(stream.tokens_s[-1] for stream in streams if stream.tokens_s)
    return _Run(streams, counted, min(stream.sent_s for stream in streams), last_s)
