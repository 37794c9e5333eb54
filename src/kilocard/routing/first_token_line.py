"""How long first tokens take, as a line: seconds = base + slope × prompt tokens to be computed until then."""

from __future__ import annotations

#: before anything is measured: a step, and 16,000 tokens/s (a 7B model on one large card)
BASE = 0.02
SLOPE = 1 / 16_000
#: the prior counts as this many samples, half of them with nothing to compute and half with so many tokens
PRIOR = 4.0
PRIOR_TOKENS = 4096.0
#: sums are halved when there are this many samples: speeds change with the batch, the time of day, the engine's version
MEMORY = 256.0
#: slopes outside are a measurement gone wrong: 200 to 2,000,000 tokens/s
LEAST, MOST = 5e-7, 5e-3
#: no first token takes less
LEAST_BASE = 0.001


class FirstTokenLine:
    """Least squares over recent samples, with a prior that some ten of them outweigh. Six numbers."""

    __slots__ = ("_n", "_x", "_xx", "_xy", "_y", "slope")

    def __init__(self) -> None:
        half, x, y = PRIOR / 2, PRIOR_TOKENS, BASE + SLOPE * PRIOR_TOKENS
        self._n, self._x, self._y = PRIOR, half * x, half * (BASE + y)
        self._xx, self._xy = half * x * x, half * x * y
        #: seconds a token
        self.slope = SLOPE

    def seconds(self, tokens: int) -> float:
        """What the line says of so many tokens."""
        mean = (self._y - self.slope * self._x) / self._n
        return max(LEAST_BASE, mean) + self.slope * tokens

    def add(self, tokens: int, seconds: float) -> None:
        """A first token came `seconds` after `tokens` had to be computed, with nobody waiting for a slot."""
        if self._n > MEMORY:
            self._n, self._x, self._y = self._n / 2, self._x / 2, self._y / 2
            self._xx, self._xy = self._xx / 2, self._xy / 2
        self._n += 1.0
        self._x += tokens
        self._y += seconds
        self._xx += tokens * tokens
        self._xy += tokens * seconds
        spread = self._n * self._xx - self._x * self._x
        if spread > 0.0:
            slope = (self._n * self._xy - self._x * self._y) / spread
            self.slope = min(MOST, max(LEAST, slope))
