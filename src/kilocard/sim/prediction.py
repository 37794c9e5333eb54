"""What a profile says of a measured point: the same requests played on it, and the same numbers taken from both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice, pairwise
from typing import Unpack

from kilocard.core.statistics import mean
from kilocard.perf.profile import Profile
from kilocard.perf.seen_steps import Stream
from kilocard.sim.limits import Limits
from kilocard.sim.played import Asked, Played, play


@dataclass(frozen=True, slots=True)
class Outcome:
    """Means over one point. None: nothing of the kind was seen."""

    output_tokens_per_s: float
    ttft_s: float | None
    itl_s: float | None


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measured point."""

    label: str
    #: in order of sending
    streams: tuple[Stream, ...]
    #: tokens that each stream was asked for, in their order
    asked_output: tuple[int, ...]
    started_s: float
    ended_s: float
    #: how many of the streams ran into the window or out of it
    carried: int = 0
    #: closed loop; None: each was sent when it was sent
    concurrency: int | None = None
    #: the sending ended before the answers did, and what was left was cut off
    cut_off: bool = False
    #: why no number should be fitted to it; None: it is good
    left_out: str | None = None


@dataclass(frozen=True, slots=True)
class Compared:
    """One point, measured and played on a profile."""

    measurement: Measurement
    seen: Outcome
    modelled: Outcome

    def errors(self) -> list[float]:
        """modelled / seen − 1 of throughput, TTFT and time between tokens, as far as they were seen."""
        pairs = [
            (self.seen.output_tokens_per_s, self.modelled.output_tokens_per_s),
            (self.seen.ttft_s, self.modelled.ttft_s),
            (self.seen.itl_s, self.modelled.itl_s),
        ]
        return [modelled / seen - 1 for seen, modelled in pairs if seen and modelled is not None]


def outcome(streams: Sequence[Stream], started_s: float, ended_s: float) -> Outcome:
    """Tokens that came within the window; latencies of the requests sent in it."""
    tokens = sum(started_s <= at_s <= ended_s for stream in streams for at_s in stream.tokens_s)
    inside = [stream for stream in streams if stream.tokens_s and started_s <= stream.sent_s <= ended_s]
    gaps = [after - before for stream in inside for before, after in pairwise(stream.tokens_s)]
    return Outcome(
        output_tokens_per_s=tokens / (ended_s - started_s),
        ttft_s=mean([stream.tokens_s[0] - stream.sent_s for stream in inside]) if inside else None,
        itl_s=mean(gaps) if gaps else None,
    )


def predicted(measurement: Measurement, profile: Profile) -> Outcome:
    """The point played on the profile. Raises EngineError when the profile has no room for a request of it."""
    played, warm = replayed(measurement, profile)
    streams = [each.stream for each in played]
    if measurement.concurrency is None:
        begin = min(stream.sent_s for stream in measurement.streams)
        started, ended = measurement.started_s - begin, measurement.ended_s - begin
    else:
        started = streams[warm].sent_s
        ended = streams[-1].sent_s if measurement.cut_off else max(stream.tokens_s[-1] for stream in streams)
    return outcome(streams, started, max(ended, started + profile.step_fixed_s))


def replayed(
    measurement: Measurement, profile: Profile, *, begin: int = 0, **limits: Unpack[Limits]
) -> tuple[list[Played], int]:
    """The same requests on the profile's engine, started as `limits` say, and how many others come before them.

    A closed loop is played as one: each request is sent when one before it ends. A loop that was warm when its window
    began is played warm: two rounds of the same requests come first, from the one at the place `begin` on. Else
    requests are sent when they were; the first one's sending is 0.
    """
    first_s = min(stream.sent_s for stream in measurement.streams)
    asked = [
        Asked(stream.prompt, output, stream.cached, stream.sent_s - first_s)
        for stream, output in zip(measurement.streams, measurement.asked_output, strict=True)
    ]
    warm = 2 * measurement.concurrency if measurement.concurrency and measurement.carried else 0
    before = islice(cycle(asked), begin, begin + warm)
    return play(profile, [*before, *asked], concurrency=measurement.concurrency, **limits), warm


def compared(measurement: Measurement, profile: Profile) -> Compared:
    seen = outcome(measurement.streams, measurement.started_s, measurement.ended_s)
    return Compared(measurement, seen, predicted(measurement, profile))
