"""How fast one replica is: a roofline of an engine's step with few numbers, and the room it has.

One engine step (one forward pass over the batch) takes

    step_fixed_s, and prefill_step_s when prompt tokens are in the step
    + max(weights_s + experts_s × share of the experts that the batch touches,
          prefill_token_s × prefill tokens + decode_seq_s × decoding sequences)
    + sequence_s × decoding sequences
    + kv_token_s × KV tokens read
    + attention_s × token pairs of prefill attention

The max is the roofline: weights are read once a step while the matrix products of all its tokens run. A batch of n
tokens touches 1 − (1 − expert_share)ⁿ of the experts (each token picks its own). With the optional terms at 0 this is
the plain linear model, in which step_fixed_s carries the weights and decode_seq_s all that a sequence costs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any, Self

from kilocard.core.errors import SpecError

#: Where the numbers come from.
PROVENANCES = ("modelled", "measured")

_POWER_OF_TEN = re.compile(r"[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]{1,3}")
_COUNTS = {"kv_tokens", "max_num_seqs", "max_num_batched_tokens", "block_size", "max_model_len"}
_STEPS = {"steps_ahead", "turnaround_steps"}
_ERRORS = {"error", "error_p90"}
_TEXTS = {"name", "engine", "engine_version", "gpu", "date", "note"}


@dataclass(frozen=True, slots=True)
class Profile:
    """Speed and room of one replica (one GPU, or one tensor/pipeline-parallel group).

    Times are seconds; sizes are tokens. `note` says what was measured, or the arithmetic.
    """

    name: str
    #: each step, whatever is in it: launches, scheduler, communication's latency
    step_fixed_s: float
    #: matrix products of one prompt token
    prefill_token_s: float
    #: matrix products of one decoding sequence (in the linear model: all that it costs)
    decode_seq_s: float
    #: reading one token of KV cache
    kv_token_s: float
    #: "GPU KV cache size: N tokens" in vLLM's log
    kv_tokens: int
    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int = 16
    max_model_len: int = 8192
    #: reading the weights that every token needs, once a step, while the matrix products run
    weights_s: float = 0.0
    #: reading all experts of a mixture, and the share of them that one token picks (8 of 128: 0.0625)
    experts_s: float = 0.0
    expert_share: float = 1.0
    #: each decoding sequence, overlapping with nothing: scheduling, sampling, detokenising
    sequence_s: float = 0.0
    #: a request's way in and out, outside of all steps: HTTP, tokeniser, handing over between processes
    request_s: float = 0.0
    #: steps that are scheduled already when a request arrives, beside the one that runs (asynchronous scheduling: 1)
    steps_ahead: float = 0.0
    #: steps more in a benchmark's closed loop, from a request's end to the next one's first token: through the client
    #: and back, and until an engine that asks for requests or hands out tokens every few steps does so
    turnaround_steps: float = 0.0
    #: attention of one prompt token to one token before it: what makes long prompts grow with their square
    attention_s: float = 0.0
    #: what a step with prompt tokens takes more, however few: no CUDA graph, so kernels are launched one by one
    prefill_step_s: float = 0.0
    provenance: str = "modelled"
    #: what was measured or modelled, and when (a date as 2026-11-30); empty: not said
    engine: str = ""
    engine_version: str = ""
    gpu: str = ""
    date: str = ""
    #: median relative error of what this profile predicts, and its 90th percentile, shares (0.05: 5 %); None: not known
    error: float | None = None
    error_p90: float | None = None
    note: str = ""

    def __post_init__(self) -> None:
        problems = _problems(asdict(self))
        if problems:
            raise SpecError("\n".join(problems))

    def step_s(self, prefill_tokens: float, decode_seqs: float, kv_tokens_read: float, attended: float = 0.0) -> float:
        """Seconds of a step that prefills so many tokens, decodes so many sequences and reads so much KV cache.

        `attended` counts pairs: for each chunk of a prompt, its tokens × the tokens before each of them (on average
        what was computed before plus half of the chunk). Means of many steps may be fractions.
        """
        reads = self.weights_s
        if self.experts_s:
            reads += self.experts_s * (1.0 - (1.0 - self.expert_share) ** (prefill_tokens + decode_seqs))
        products = self.prefill_token_s * prefill_tokens + self.decode_seq_s * decode_seqs
        return (
            self.step_fixed_s
            + (self.prefill_step_s if prefill_tokens else 0.0)
            + (reads if reads > products else products)
            + self.sequence_s * decode_seqs
            + self.kv_token_s * kv_tokens_read
            + self.attention_s * attended
        )

    @property
    def kv_blocks(self) -> int:
        return self.kv_tokens // self.block_size

    def to_mapping(self) -> dict[str, Any]:
        """Plain types, ready for YAML or JSON; from_mapping's inverse."""
        return asdict(self)

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> Self:
        """Raises SpecError that lists every problem, one a line."""
        known = {each.name: each for each in fields(cls)}
        # YAML 1.1 takes 4e-8 for text, unlike JSON and everybody who writes it
        numbers = {name for name, each in known.items() if each.type != "str"}
        data = {
            str(key): float(value)
            if key in numbers and isinstance(value, str) and _POWER_OF_TEN.fullmatch(value)
            else value
            for key, value in data.items()
        }
        needed = [name for name, each in known.items() if each.default is MISSING]
        problems = [f"profile.{key}: unknown key; known are {', '.join(known)}" for key in data if key not in known]
        problems += [f"profile.{name}: missing" for name in needed if name not in data]
        problems += _problems(data)
        if problems:
            raise SpecError("\n".join(problems))
        return cls(**data)


def _problems(data: Mapping[str, Any]) -> list[str]:
    found = []
    for key, value in data.items():
        where = f"profile.{key}"
        number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if key.endswith("_s"):
            if not number or value < 0:
                found.append(f"{where}: {value!r} is not a time in seconds (a number, 0 or more)")
            elif key == "step_fixed_s" and value == 0:
                found.append(f"{where}: a step that takes no time at all would never end; measure one decode step")
        elif key in _COUNTS:
            if not number or value != int(value) or value < 1:
                found.append(f"{where}: {value!r} is not a whole number, 1 or more")
        elif key in _TEXTS:
            if not isinstance(value, str) or (key == "name" and not value):
                found.append(f"{where}: {value!r} is not a text; put it in quotes")
        elif key in _STEPS:
            if not number or value < 0:
                found.append(f"{where}: {value!r} is not a number of steps, 0 or more")
        elif key == "expert_share":
            if not number or not 0 < value <= 1:
                found.append(f"{where}: {value!r} is not a share of the experts, above 0 and at most 1")
        elif key in _ERRORS:
            if value is not None and (not number or value < 0):
                found.append(f"{where}: {value!r} is not a relative error (0.05 for 5 %)")
        elif key == "provenance" and value not in PROVENANCES:
            found.append(f"{where}: {value!r} is none of {', '.join(PROVENANCES)}")
    if not found and data.get("kv_tokens", 2) < 2 * data.get("block_size", 1):
        found.append("profile.kv_tokens: less than two blocks of block_size tokens")
    return found
