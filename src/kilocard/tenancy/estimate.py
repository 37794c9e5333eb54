"""How many tokens a prompt may be, learned from what engines counted: an estimate that is seldom too low."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

#: tokens a byte before anything is known: 4 bytes a token, see wire/tokens.py
_START: Final = 0.25
#: bodies up to these sizes are learned apart, since a chat template adds the same tokens to all of them
_SIZES: Final = (256, 1024, 4096, 16_384, 65_536)
#: One step towards a ratio above what is known, and below it: two prompts that are denser are believed, and it takes
#: some 60 that are not to forget them. Where ratios vary this settles near their upper end (an expectile of 32 to 1) …
_UP: Final = 0.5
_DOWN: Final = 0.5 / 32
#: … and this much on top covers nearly all the rest
_MARGIN: Final = 1.1
#: no token is less than a quarter of a byte
_MOST: Final = 4.0 / _MARGIN


class PromptEstimates:
    """Tokens per byte of body, by tenant, model and size.

    By tenant too, so that one that sends what no tokenizer likes does not make others' reservations dear. Bounded by
    the cluster file, whose tenants and models are the only ones that come here.
    """

    def __init__(self) -> None:
        self._ratios: dict[tuple[str, str], list[float]] = {}

    def tokens(self, tenant: str, model: str, size: int) -> int:
        """`size`: bytes of the body that are text."""
        ratios = self._ratios.get((tenant, model))
        if ratios is None:
            return int(size * _START) + 1
        return int(size * ratios[bisect_left(_SIZES, size)] * _MARGIN) + 1

    def learn(self, tenant: str, model: str, size: int, tokens: int, *, doubted: bool = False) -> None:
        """An engine counted `tokens` for a body of `size` bytes. `doubted`: what was known made the request impossible,
        so it is not left to sixty others to correct that: none of them might ever run."""
        if size <= 0 or tokens <= 0:
            return
        ratios = self._ratios.get((tenant, model))
        if ratios is None:
            ratios = self._ratios[tenant, model] = [_START / _MARGIN] * (len(_SIZES) + 1)
        place = bisect_left(_SIZES, size)
        known = ratios[place]
        seen = tokens / size
        if seen > known or doubted:
            ratios[place] = known + _UP * (min(seen, _MOST) - known)
        else:
            ratios[place] = known + _DOWN * (seen - known)
