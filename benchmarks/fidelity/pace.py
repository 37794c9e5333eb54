"""How fast the machine was within a load: steps, as they can be told from outside, beside what a profile says."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kilocard.core.statistics import mean
from kilocard.perf.profile import Profile
from kilocard.perf.seen_steps import Stream, Watched, Window, windows

#: max-num-batched-tokens of vLLM on a CPU
BUDGET = 2048
#: how many were seen, ms, prompt tokens, decoding sequences, KV tokens read, token pairs: means of one kind of step
Kind = list[float]


def steps(streams: Sequence[Stream], since_s: float = -math.inf) -> list[Kind]:
    """Kinds of steps: by decoding sequences, and by prompt tokens in hundreds."""
    kinds: dict[tuple[int, int], list[Window]] = {}
    for window in windows(Watched(streams, since_s), budget=BUDGET, length=1):
        if not window.from_sending:
            (step,) = window.steps
            kinds.setdefault((step.decode_seqs, math.ceil(step.prefill_tokens / 100)), []).append(window)
    found = []
    for _, seen in sorted(kinds.items()):
        ms = mean([window.duration_s * 1e3 for window in seen])
        what = [mean(values) for values in zip(*(window.steps[0] for window in seen), strict=True)]
        found.append([len(seen), round(ms, 2), *(round(value, 1) for value in what)])
    return found


def pace(kinds: Sequence[Kind], profile: Profile) -> float:
    """How many times as long the steps took as the profile says for what was in them."""
    took = sum(count * ms / 1e3 for count, ms, *_ in kinds)
    return took / sum(count * profile.step_s(*what) for count, _, *what in kinds)
