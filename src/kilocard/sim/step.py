"""What comes out of an engine's steps, and how long they take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from kilocard.perf.profile import Profile

#: Picoseconds in a second. Durations are whole picoseconds, so that the sum of many steps is the same number however
#: it is added up: one by one, or in closed form.
SECOND = 10**12


class StepResult(NamedTuple):
    """What one step does. Its tokens come out `duration_s` after its start."""

    duration_s: float
    #: (request id, tokens that come out), in batch order
    emitted: list[tuple[str, int]]
    #: requests whose last token is among the emitted
    finished: list[str]
    #: requests that got their first slot
    admitted: list[str]
    preempted: list[str]
    prefill_tokens: int
    decode_seqs: int
    duration_ps: int


class Event(NamedTuple):
    """first: the first token is out, `tokens` of the prompt came from the prefix cache. finished: the last token is
    out, `tokens` in all. preempted: thrown out of the batch, `tokens` have to be computed again."""

    at_s: float
    kind: Literal["first", "finished", "preempted"]
    request_id: str
    tokens: int


class Stretch(NamedTuple):
    """Steps in a row that emit equally many tokens each: step i (from 0) takes first_ps + i × growth_ps."""

    start_ps: int
    steps: int
    first_ps: int
    growth_ps: int
    #: tokens that come out of each step
    tokens: int


@dataclass(slots=True)
class Counters:
    """Since the engine's start, in requests or tokens."""

    steps: int = 0
    added: int = 0
    finished: int = 0
    aborted: int = 0
    #: each preemption when it happens
    preempted: int = 0
    #: as vLLM exports it: a preemption is counted with the next output of its victim, so it lags
    preemptions_reported: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    #: of the first admission of each request, as vLLM counts them
    prefix_queries: int = 0
    prefix_hits: int = 0


class StepTimes:
    """A profile's step time in whole picoseconds: what the batch costs, plus `kv_ps` for each KV token read."""

    __slots__ = ("_decode", "_profile", "kv_ps")

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self.kv_ps = round(profile.kv_token_s * SECOND)
        #: by the number of sequences, where all of them decode
        self._decode: dict[int, int] = {}

    def of(self, prefill_tokens: int, decode_seqs: int, attended: float) -> int:
        return round(self._profile.step_s(prefill_tokens, decode_seqs, 0, attended) * SECOND)

    def decode(self, sequences: int) -> int:
        known = self._decode.get(sequences)
        if known is None:
            known = self._decode[sequences] = self.of(0, sequences, 0.0)
        return known
