"""What is measured: engines started in several ways, and the loads on each.

The profile comes from `CALIBRATION` alone. Everything in `PARTS` is predicted.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from kilocard.workload.arrivals import Poisson
from kilocard.workload.generate import generate
from kilocard.workload.mixes import Mix, read_mix
from kilocard.workload.request import WorkloadRequest

#: prompt and answer tokens, as `--mix` of kilocard bench
USUAL = "100% 30-300/20-60"
LONG_PROMPTS = "100% 400-900/10-30"
LONG_ANSWERS = "100% 20-60/100-200"
MIXED = "85% 30-120/15-45; 15% 500-900/60-120"
#: with 5,120 tokens of KV cache some 20 of these fit, and not when they are done
GROWING = "100% 100-140/150-250"


@dataclass(frozen=True)
class Load:
    """`closed`: requests in flight. `share`: Poisson arrivals at this share of the capacity that the calibration's
    largest load showed, or that the load `of` of the same part did."""

    name: str
    mix: str = USUAL
    closed: int | None = None
    #: of a closed loop
    requests: int = 80
    share: float | None = None
    #: a closed load of the same lengths, measured before
    of: str = ""
    seconds: float = 60.0
    seed: int = 0


@dataclass(frozen=True)
class Part:
    """One start of the engine."""

    name: str
    max_num_seqs: int
    loads: tuple[Load, ...]
    #: more of vLLM's arguments
    arguments: tuple[str, ...] = ()


#: what the profile is fitted to, on an engine with --max-num-seqs 8
CALIBRATION = ["--sweep", "1,2,4,8,16", "--mix", USUAL, "--duration", "20s"]
CALIBRATION_SLOTS = 8

_RATES = (0.5, 0.8, 0.95, 1.1)
_OPEN = tuple(Load(f"usual at {share:g} of capacity", share=share, seed=place) for place, share in enumerate(_RATES))
#: parts that measure the arrivals and lengths of the first once more: what differs there is noise
REPEATED = ("rates", "again", "third")

PARTS = (
    Part("rates", 8, _OPEN),
    Part("again", 8, _OPEN),
    Part("third", 8, _OPEN),
    Part(
        "lengths",
        8,
        (
            Load("usual, 3 at once", closed=3, requests=50),
            Load("usual, 12 at once", closed=12),
            Load("long prompts, 6 at once", LONG_PROMPTS, closed=6, requests=50),
            Load("long answers, 6 at once", LONG_ANSWERS, closed=6, requests=24),
            Load("mixed, 16 at once", MIXED, closed=16),
            Load("mixed at 0.8 of capacity", MIXED, share=0.8, of="mixed, 16 at once", seed=7),
            Load("mixed at 0.95 of capacity", MIXED, share=0.95, of="mixed, 16 at once", seed=8),
        ),
    ),
    Part(
        "slots-4",
        4,
        (
            Load("usual, 8 at once", closed=8),
            Load("usual at 0.8 of capacity", share=0.8, of="usual, 8 at once", seed=5),
        ),
    ),
    Part(
        "slots-16",
        16,
        (
            Load("usual, 12 at once", closed=12),
            Load("usual, 24 at once", closed=24, requests=100),
            Load("usual at 0.95 of capacity", share=0.95, of="usual, 24 at once", seed=6),
        ),
    ),
    Part(
        "small-kv",
        32,
        (
            Load("growing, 24 at once", GROWING, closed=24, requests=36),
            Load("growing at 0.8 of capacity", GROWING, share=0.8, of="growing, 24 at once", seed=9),
        ),
        ("--num-gpu-blocks-override", "40", "--max-model-len", "1024"),
    ),
)


def mix_of(load: Load) -> Mix:
    return read_mix(load.mix)


def arrivals(load: Load, capacity_per_s: float) -> list[WorkloadRequest]:
    """Of an open loop, the same each time for the same capacity."""
    assert load.share is not None
    rng = Random(f"fidelity {load.seed}")  # nothing secret is drawn
    found = []
    for request in generate(Poisson(load.share * capacity_per_s), mix_of(load), rng):
        if request.at_s > load.seconds:
            break
        found.append(request)
    return found
