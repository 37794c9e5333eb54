"""How far the engines' own counters bear out the hits that we expect."""

from __future__ import annotations

from kilocard.core.load import LoadSample

#: tokens of expected hits before the engines' word counts
ENOUGH = 20_000.0
#: sums are halved when the prompts they are made of have this many tokens: some minutes of one replica's work
MEMORY = 2_000_000.0


class Trust:
    """Share of the expected hits that engines really had: 1 while nothing else is known.

    Both shares are of all prompt tokens, theirs of all requests there, ours of our own; where others send there too
    they are still comparable. It falls where the caches are switched off, smaller than we think, or split by what we do
    not see; above all where each prompt begins with something new that we leave out of the hash and the engine does
    not.
    """

    __slots__ = ("_asked", "_expected", "_had", "_sent", "share")

    def __init__(self) -> None:
        #: tokens by the engines' counters, and by our belief
        self._asked = self._had = 0.0
        self._sent = self._expected = 0.0
        self.share = 1.0

    def sent(self, tokens: int, expected: int) -> None:
        """A prompt was sent where so much of it should be cached."""
        self._sent += tokens
        self._expected += expected

    def read(self, before: LoadSample, after: LoadSample) -> None:
        """Two readings of one replica in a row, of one life of it."""
        if (
            before.prefix_queries_total is None
            or after.prefix_queries_total is None
            or before.prefix_hits_total is None
            or after.prefix_hits_total is None
        ):
            return
        asked = after.prefix_queries_total - before.prefix_queries_total
        if asked <= 0:
            return
        self._asked += asked
        self._had += max(0.0, after.prefix_hits_total - before.prefix_hits_total)
        if self._expected >= ENOUGH and self._asked > 0:
            self.share = min(1.0, self._had / self._asked / (self._expected / self._sent))
        if self._asked > MEMORY or self._sent > MEMORY:
            self._asked, self._had = self._asked / 2, self._had / 2
            self._sent, self._expected = self._sent / 2, self._expected / 2


def restarted(before: LoadSample, after: LoadSample) -> bool:
    """A counter that falls began anew: so did the engine, with an empty cache."""
    for old, new in (
        (before.prefix_queries_total, after.prefix_queries_total),
        (before.prompt_tokens_total, after.prompt_tokens_total),
        (before.generation_tokens_total, after.generation_tokens_total),
    ):
        if old is not None and new is not None and new < old:
            return True
    return False
