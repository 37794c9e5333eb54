"""How fast one replica is: a linear model of an engine's step, and the room it has.

One engine step (one forward pass over the batch) takes

    step_fixed_s + prefill_token_s × prefill tokens + decode_seq_s × decoding sequences + kv_token_s × KV tokens read

which is what a roofline gives for a memory-bound decode (weights once per step, KV per token) with a compute-bound
prefill on top.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any, Self

from kilocard.core.errors import SpecError

#: Where the numbers come from.
PROVENANCES = ("modelled", "measured")


@dataclass(frozen=True, slots=True)
class Profile:
    """Speed and room of one replica (one GPU, or one tensor/pipeline-parallel group).

    Times are seconds; sizes are tokens. `note` says what was measured, or the arithmetic.
    """

    name: str
    step_fixed_s: float
    prefill_token_s: float
    decode_seq_s: float
    kv_token_s: float
    #: "GPU KV cache size: N tokens" in vLLM's log
    kv_tokens: int
    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int = 16
    max_model_len: int = 8192
    provenance: str = "modelled"
    note: str = ""

    def __post_init__(self) -> None:
        problems = _problems(asdict(self))
        if problems:
            raise SpecError("\n".join(problems))

    def step_s(self, prefill_tokens: int, decode_seqs: int, kv_tokens_read: int) -> float:
        """Seconds of a step that prefills so many tokens, decodes so many sequences and reads so much KV cache."""
        return (
            self.step_fixed_s
            + self.prefill_token_s * prefill_tokens
            + self.decode_seq_s * decode_seqs
            + self.kv_token_s * kv_tokens_read
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
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if key.endswith("_s"):
            if not number or not math.isfinite(value) or value < 0:
                found.append(f"{where}: {value!r} is not a time in seconds (a number, 0 or more)")
            elif key == "step_fixed_s" and value == 0:
                found.append(f"{where}: a step that takes no time at all would never end; measure one decode step")
        elif key in {"kv_tokens", "max_num_seqs", "max_num_batched_tokens", "block_size", "max_model_len"}:
            if not number or value != int(value) or value < 1:
                found.append(f"{where}: {value!r} is not a whole number, 1 or more")
        elif key in {"name", "note"}:
            if not isinstance(value, str) or (key == "name" and not value):
                found.append(f"{where}: {value!r} is not a text")
        elif key == "provenance" and value not in PROVENANCES:
            found.append(f"{where}: {value!r} is none of {', '.join(PROVENANCES)}")
    if not found and data.get("kv_tokens", 2) < 2 * data.get("block_size", 1):
        found.append("profile.kv_tokens: less than two blocks of block_size tokens")
    return found
