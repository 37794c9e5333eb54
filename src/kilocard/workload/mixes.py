"""Kinds of request and how often each comes: short chat beside long documents, one tenant beside another."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import accumulate
from random import Random

from kilocard.core.errors import UsageError
from kilocard.workload.lengths import Length, read_length


@dataclass(frozen=True, slots=True)
class Kind:
    """`share` is against the other kinds' shares; they need not add up to 1."""

    input: Length
    output: Length
    share: float = 1.0
    tenant: str | None = None
    model: str | None = None
    priority: str | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.share) and self.share > 0):
            raise UsageError(f"a kind of request with share {self.share}: it must be above 0")


@dataclass(frozen=True, slots=True)
class Mix:
    kinds: tuple[Kind, ...]
    _ends: tuple[float, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.kinds:
            raise UsageError("a mix without a kind of request asks nothing")
        object.__setattr__(self, "_ends", tuple(accumulate(kind.share for kind in self.kinds)))

    @classmethod
    def of(cls, input: Length, output: Length) -> Mix:
        """All requests of one kind."""
        return cls((Kind(input, output),))

    def draw(self, rng: Random) -> Kind:
        if len(self.kinds) == 1:
            return self.kinds[0]
        place = bisect_right(self._ends, rng.random() * self._ends[-1])
        return self.kinds[min(place, len(self.kinds) - 1)]


_KIND = re.compile(r"(?:(\d+(?:\.\d+)?)\s*%\s*)?([^/%]+)/([^/%]+)")


def read_mix(text: str) -> Mix:
    """`80% 512/128; 20% mean=6000,p99=20000/500`: shares, inputs, outputs. UsageError says which part is wrong.

    One kind alone needs no share.
    """
    kinds = []
    for part in text.split(";"):
        found = _KIND.fullmatch(part.strip())
        if found is None:
            raise UsageError(f"mix {part.strip()!r}: write SHARE% INPUT/OUTPUT, several with ';' between")
        kinds.append(Kind(read_length(found[2]), read_length(found[3]), float(found[1] or 100)))
    total = sum(kind.share for kind in kinds)
    if abs(total - 100) > 0.5:
        raise UsageError(f"mix {text!r}: the shares add up to {total:g} %, not 100 %")
    return Mix(tuple(kinds))
