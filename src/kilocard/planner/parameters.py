"""The engine's arguments that matter most, and why they have the value they have (requirement R16)."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from random import Random

from kilocard.perf.gpus import Gpu
from kilocard.workload.lengths import Fixed, Length

#: share of the GPU's memory that the engine may plan with
UTILIZATION, UTILIZATION_CONSUMER = 0.90, 0.85
#: above it engines pass their own check and then die capturing CUDA graphs, for want of 0.1 GiB
UTILIZATION_MOST = 0.95
#: steps of max-num-seqs: begin at 16 and go up while the curve rises
SEQS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
#: room above the longest length that was seen
SPARE_LENGTH = 1.25
_SHORTEST_LIMIT = 2048
_DRAWS = 2000


#: the arguments that are chosen for a load where nobody pins them
UTILIZATION_NAME, LENGTH_NAME, SEQS_NAME = "utilization", "max_model_len", "max_num_seqs"
OPEN = frozenset({UTILIZATION_NAME, LENGTH_NAME, SEQS_NAME})


@dataclass(frozen=True, slots=True)
class Parameter:
    flag: str
    value: str
    why: str


def utilization(gpu: Gpu) -> float:
    return UTILIZATION_CONSUMER if gpu.consumer else UTILIZATION


def max_num_seqs(streams: float) -> int:
    """The first step at or above the streams that the objective allows."""
    return next((step for step in SEQS if step >= streams - 1e-9), SEQS[-1])


def longest(inputs: Length, outputs: Length, rng: Random) -> int:
    """Tokens of the longest request that is to be expected."""
    if isinstance(inputs, Fixed) and isinstance(outputs, Fixed):
        return inputs.tokens + outputs.tokens
    return max(inputs.draw(rng) for _ in range(_DRAWS)) + max(outputs.draw(rng) for _ in range(_DRAWS))


def max_model_len(longest_request: int, most: int | None) -> int:
    """A multiple of 1024 with room to spare, no more than the model's own limit `most` (but never less than asked)."""
    wanted = max(_SHORTEST_LIMIT, -(-int(longest_request * SPARE_LENGTH) // 1024) * 1024)
    return wanted if most is None else max(min(wanted, most), longest_request)


def explain(
    *,
    gpu: Gpu,
    utilization: float,
    outside_gib: float,
    max_model_len: int,
    longest_request: int,
    max_num_seqs: int,
    streams: int,
    limit: str,
    prefix_cache: bool,
    ours: Set[str] = OPEN,
    given: Set[str] = frozenset(),
) -> tuple[Parameter, ...]:
    """`streams`: at once, at the replica's capacity; `outside_gib`: memory of a GPU that the engine leaves alone.

    Of the names in OPEN `given` has those that somebody pinned and `ours` those that we chose; the others are the
    engine's own defaults. Only of a choice of ours it may be said what it was chosen for.
    """

    def why(name: str, chosen: str, other: str, default: str = "the default of the engine") -> str:
        if name in ours:
            return chosen
        return f"{'as given' if name in given else default}; {other}"

    left = f"{outside_gib:.1f} GiB stay outside for CUDA context, other processes and fragmentation"
    card = (
        "a consumer card may drive a display and has less to spare: about 15 % off" if gpu.consumer else "0.85 to 0.90"
    )
    usual = "0.85 is usual on a consumer card, which may drive a display" if gpu.consumer else "0.85 to 0.90 is usual"
    carries = f"{streams} streams at once are what this replica carries (limit: {limit})"
    found = [
        Parameter(
            "gpu-memory-utilization",
            f"{utilization:g}",
            f"{why(UTILIZATION_NAME, card, usual)}; {left}",
        ),
        Parameter(
            "max-model-len",
            str(max_model_len),
            why(
                LENGTH_NAME,
                f"longest request {longest_request:,} tokens and room to spare; a longer limit only lets in what "
                "starves the others",
                f"longest request {longest_request:,} tokens",
                default="the model's own, or the longest that fits",
            ),
        ),
        Parameter(
            "max-num-seqs",
            str(max_num_seqs),
            why(
                SEQS_NAME,
                f"{carries}; more would wait in the engine or be preempted, and the gateway can't send them elsewhere "
                "any more",
                carries,
            ),
        ),
    ]
    if prefix_cache:
        found.append(
            Parameter(
                "enable-prefix-caching",
                "true",
                "chat and agents repeat their history: what is cached is not computed again. The cache uses KV room "
                "that nobody needs, and gives it back",
            )
        )
    return tuple(found)
