"""How many tokens a prompt may be, learned from what engines counted: an estimate that is seldom too low."""

from __future__ import annotations

#: tokens a byte before anything is known: 4 bytes a token, see wire/tokens.py
_START = 0.25
#: bodies up to these sizes are learned apart, since a chat template adds the same tokens to all of them
_SIZES = (256, 1024, 4096, 16_384, 65_536)
#: One step towards a ratio above what is known, and below it: two prompts that are denser are believed, and it takes
#: some 60 that are not to forget them. Where ratios vary this settles near their upper end (an expectile of 32 to 1) …
_UP, _DOWN = 0.5, 0.5 / 32
#: … and this much on top covers nearly all the rest
_MARGIN = 1.1
#: no token is less than a quarter of a byte, and none is more than 64
_LEAST, _MOST = 1 / 64, 4.0


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
        return int(size * (_START if ratios is None else min(ratios[_place(size)] * _MARGIN, _MOST))) + 1

    def learn(self, tenant: str, model: str, size: int, tokens: int) -> None:
        """An engine counted `tokens` for a body of `size` bytes."""
        if size <= 0 or tokens <= 0:
            return
        ratios = self._ratios.get((tenant, model))
        if ratios is None:
            ratios = self._ratios[tenant, model] = [_START / _MARGIN] * (len(_SIZES) + 1)
        place = _place(size)
        seen = min(max(tokens / size, _LEAST), _MOST)
        ratios[place] += (_UP if seen > ratios[place] else _DOWN) * (seen - ratios[place])


def _place(size: int) -> int:
    for place, most in enumerate(_SIZES):
        if size <= most:
            return place
    return len(_SIZES)
