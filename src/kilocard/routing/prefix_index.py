"""Which replica has which beginnings of prompts in its KV cache, as far as the prompts tell that were sent there.

Approximate, and bounded: each replica's keys are in the order of their last use and fall out when they would not fit
its cache any more, as in the engine. Replicas are slots here, small numbers, so that a set of them is one integer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from kilocard.routing.prefix_cache import COVERED, Cache

#: keys of all replicas together: some 150 bytes each, 75 MB at most
MOST_KEYS = 500_000
#: sessions that are remembered by name; 300 bytes each
MOST_SESSIONS = 50_000

#: a replica's slot, how many keys of a prompt it has, and the tokens that these cover
Holder = tuple[int, int, int]


class PrefixIndex:
    """Keys of all replicas of one pool. Cost of each method: O(keys of the prompt), whatever the number of replicas.

    Who has a key has all before it in its chain. That makes the longest match a binary search.
    """

    __slots__ = ("_caches", "_holders", "_sessions")

    def __init__(self) -> None:
        self._caches: dict[int, Cache] = {}
        #: key → a bit for each slot that has it
        self._holders: dict[int, int] = {}
        #: session → where its last request went, that cache's `written` then, the request's tokens
        self._sessions: OrderedDict[int, tuple[Cache, int, int]] = OrderedDict()

    def __len__(self) -> int:
        """Keys in memory, each as often as there are replicas that have it."""
        return sum(len(cache.held) for cache in self._caches.values())

    @property
    def distinct(self) -> int:
        return len(self._holders)

    @property
    def sessions(self) -> int:
        return len(self._sessions)

    def add(self, slot: int, capacity: float) -> None:
        """A replica with nothing in its cache."""
        self.drop(slot)
        self._caches[slot] = Cache(slot, capacity)

    def drop(self, slot: int) -> None:
        """Its cache is gone, or the replica is."""
        cache = self._caches.pop(slot, None)
        if cache is not None:
            cache.lost = True
            self._let_go(cache.held, cache.bit)

    def resize(self, slot: int, capacity: float) -> None:
        """Its cache holds this many tokens, as we know now."""
        cache = self._caches[slot]
        cache.capacity = capacity
        self._fit(cache)

    def put(self, slot: int, keys: Sequence[int], tokens: int, session: int = 0, matched: int = -1) -> None:
        """A prompt of so many tokens goes there. `matched`: how many of the keys it has there, −1: not known."""
        cache = self._caches[slot]
        if matched < 0:
            matched = cache.matched(keys, len(keys))
        new = cache.use(keys, matched)
        if new:
            holders, bit = self._holders, cache.bit
            for key in new:
                had = holders.setdefault(key, bit)
                if had is not bit:
                    holders[key] = had | bit
        cache.written += max(0, tokens - COVERED[matched])
        if session:
            self._sessions[session] = (cache, cache.written, tokens)
            self._sessions.move_to_end(session)
            if len(self._sessions) > MOST_SESSIONS:
                self._sessions.popitem(last=False)
        if new:
            self._fit(cache)

    def hit(self, slot: int, keys: Sequence[int]) -> int:
        """Tokens of this prompt that the replica is believed to have."""
        return COVERED[self._caches[slot].matched(keys, len(keys))]

    def matched(self, slot: int, keys: Sequence[int], most: int) -> int:
        """How many of the first `most` keys the replica is believed to have; all of them is likely."""
        if most and self._holders.get(keys[most - 1], 0) >> slot & 1:
            return most
        return self._caches[slot].matched(keys, most)

    def session(self, name: int) -> tuple[int, int] | None:
        """Where a session's last request went and the tokens of it that are believed to be there still."""
        known = self._sessions.get(name)
        if known is None:
            return None
        cache, written, tokens = known
        if cache.lost or cache.written - written > cache.capacity:
            return None
        return cache.slot, tokens

    def holders(self, keys: Sequence[int], among: int, least: int, most: int, turn: int) -> tuple[list[Holder], int]:
        """At most `most` replicas of `among` that have a longer beginning of this prompt than the one in slot `least`,
        the longest first; and how many keys that one has.

        Of many that have the same, those from slot `turn` on, so that it is other ones each time.
        """
        found: list[Holder] = []
        caches, holders = self._caches, self._holders
        count = len(keys)
        cache = caches.get(least)
        had = 0 if cache is None else cache.matched(keys, count)
        left = holders.get(keys[had], 0) & among if had < count else 0
        while left:
            low = had + 1
            if holders.get(keys[count - 1], 0) & left:  # most turns of a conversation add no key
                low = count
            while low < count:
                middle = (low + count + 1) >> 1
                if holders.get(keys[middle - 1], 0) & left:
                    low = middle
                else:
                    count = middle - 1
            having = holders[keys[low - 1]] & left
            left ^= having
            while having:
                after = having >> turn << turn or having
                lowest = after & -after
                having ^= lowest
                found.append((lowest.bit_length() - 1, low, COVERED[low]))
                if len(found) == most:
                    return found, had
            count = low - 1
        return found, had

    def common(self, keys: Sequence[int], among: int, number: int) -> int:
        """Tokens of this prompt that more than `number` replicas of `among` have."""
        holders = self._holders
        low, high = 0, len(keys)
        while low < high:
            middle = (low + high) >> 1
            if (holders.get(keys[middle], 0) & among).bit_count() > number:
                low = middle + 1
            else:
                high = middle
        return COVERED[low]

    def _fit(self, cache: Cache) -> None:
        most = max(1, MOST_KEYS // len(self._caches))
        if cache.tokens > cache.capacity or len(cache.held) > most:
            self._let_go(cache.evict(most), cache.bit)

    def _let_go(self, keys: Iterable[int], bit: int) -> None:
        holders = self._holders
        for key in keys:
            having = holders[key]
            if having == bit:
                del holders[key]
            else:
                holders[key] = having ^ bit
