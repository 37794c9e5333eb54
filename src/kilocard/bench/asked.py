"""What is to be measured, checked before anything is sent. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from kilocard.bench.loads import Load
from kilocard.core.errors import UsageError
from kilocard.workload.mixes import Mix
from kilocard.workload.request import WorkloadRequest
from kilocard.workload.sessions import Chat

#: prompt lengths of the single-request phase, as multiples of the mean length
_AROUND = (0.25, 1.0, 4.0)
#: requests of each of them
SINGLE_REPEATS = 3
#: answers of the requests that are there for their prompts: TTFT needs one token, a gap needs two
SINGLE_OUTPUT = 2


@dataclass(frozen=True, slots=True)
class Asked:
    """Times are seconds."""

    mix: Mix
    #: instead of the mix: conversations, whose turns carry the history before them
    chat: Chat | None = None
    #: none: doubling until past the knee
    loads: tuple[Load, ...] = ()
    #: instead of loads: these requests at their times
    trace: tuple[WorkloadRequest, ...] = ()
    #: of each point's window; None when `requests` says how much is measured
    duration_s: float | None = 20.0
    requests: int | None = None
    repeats: int = 1
    #: of an automatic sweep
    most: int = 512
    #: shape of the gamma distribution of an open loop's gaps; 1: Poisson
    burstiness: float = 1.0
    #: for all points together, probing included
    max_seconds: float = 1800.0
    #: measure prefill and decode apart, one request at a time, before the points
    single: bool = True
    #: of lengths and arrivals. Prompts have other words in each run whatever it is
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value in (("--duration", self.duration_s), ("--max-seconds", self.max_seconds)):
            if value is not None and value <= 0:
                raise UsageError(f"{name}: must be above 0")
        for name, count in (("--requests", self.requests), ("--repeats", self.repeats)):
            if count is not None and count < 1:
                raise UsageError(f"{name}: must be 1 or more")
        if self.trace and self.loads:
            raise UsageError("--trace has its own arrivals: leave --sweep and --rate away")
        if self.burstiness <= 0:
            raise UsageError("--burstiness: must be above 0; 1 is Poisson, less comes in bursts")


def single_lengths(mean_input: float, longest: int | None, shortest: int = 1) -> list[int]:
    """Prompt lengths for the single-request phase: a straight line through them parts what a prompt costs from what
    each of its tokens costs. `longest` and `shortest` are what the server takes and our prompts can be, in tokens."""
    lengths = {round(max(shortest, mean_input * factor)) for factor in _AROUND}
    if longest is not None:
        lengths = {min(length, longest) for length in lengths}
    found: list[int] = []
    for length in sorted(lengths):
        # two lengths that are nearly the same put no line
        if length >= 1 and (not found or length >= 1.5 * found[-1]):
            found.append(length)
    return found


def too_long(mix: Mix, longest: int | None) -> str | None:
    """Why a server that takes `longest` tokens of prompt and answer can't take this mix; None: nothing is known."""
    if longest is None:
        return None
    for kind in mix.kinds:
        tokens = kind.input.mean + kind.output.mean
        if tokens > longest:
            return (
                f"prompts of {kind.input.mean:g} tokens with answers of {kind.output.mean:g} do not fit into the "
                f"{longest} tokens that the server takes: choose a smaller --input or --output"
            )
    return None
