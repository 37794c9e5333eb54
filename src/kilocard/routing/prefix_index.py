"""Which replica has which beginnings of prompts in its KV cache, as far as the prompts tell that were sent there.

Approximate, and bounded: each replica's keys are in the order of their last use and fall out when they would not fit
its cache any more, as in the engine. Replicas are slots here, small numbers, so that a set of them is one integer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from kilocard.core.prefix import EDGES

#: keys of all replicas together: some 220 bytes each, 110 MB at most
MOST_KEYS = 500_000
#: sessions that are remembered by name; 300 bytes each
MOST_SESSIONS = 50_000


class Cache:
    """What one replica has cached, by our belief. A replica that loses its cache gets a new one."""

    __slots__ = ("capacity", "keys", "lost", "slot", "tokens", "written")

    def __init__(self, slot: int, capacity: float) -> None:
        self.slot = slot
        #: tokens
        self.capacity = capacity
        #: key → tokens between its edge and the one before; the next to be evicted first
        self.keys: OrderedDict[int, int] = OrderedDict()
        #: sum of these
        self.tokens = 0
        #: tokens that came new into it, ever: how old a session's is
        self.written = 0
        self.lost = False


class PrefixIndex:
    """Keys of all replicas of one pool. Cost of each method: O(keys of the prompt), whatever the number of replicas.

    In each cache a key is newer than those behind it in its chain, so a chain is evicted from its end, as engines do
    it, and who has a key has all before it. That makes the longest match a binary search.
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
        return sum(len(cache.keys) for cache in self._caches.values())

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
            for key in cache.keys:
                self._let_go(key, slot)

    def resize(self, slot: int, capacity: float) -> None:
        """Its cache holds this many tokens, as we know now."""
        cache = self._caches[slot]
        cache.capacity = capacity
        self._evict(cache)

    def put(self, slot: int, keys: Sequence[int], tokens: int, session: int = 0) -> None:
        """A prompt of so many tokens goes there."""
        cache = self._caches[slot]
        held, holders = cache.keys, self._holders
        bit = 1 << slot
        matched = self._longest(keys, bit, len(keys))
        for place in range(len(keys) - 1, matched - 1, -1):  # the end first: see above
            key = keys[place]
            span = held[key] = EDGES[place] - (EDGES[place - 1] if place else 0)
            cache.tokens += span
            holders[key] = holders.get(key, 0) | bit
        refresh = held.move_to_end
        for key in reversed(keys[:matched]):
            refresh(key)
        cache.written += max(0, tokens - (EDGES[matched - 1] if matched else 0))
        if session:
            self._sessions[session] = (cache, cache.written, tokens)
            self._sessions.move_to_end(session)
            if len(self._sessions) > MOST_SESSIONS:
                self._sessions.popitem(last=False)
        if cache.tokens > cache.capacity or len(held) * len(self._caches) > MOST_KEYS:
            self._evict(cache)

    def hit(self, slot: int, keys: Sequence[int]) -> int:
        """Tokens of this prompt that the replica is believed to have."""
        count = self._longest(keys, 1 << slot, len(keys))
        return EDGES[count - 1] if count else 0

    def session(self, name: int) -> tuple[int, int] | None:
        """Where a session's last request went and the tokens of it that are believed to be there still."""
        known = self._sessions.get(name)
        if known is None:
            return None
        cache, written, tokens = known
        if cache.lost or cache.written - written > cache.capacity:
            return None
        return cache.slot, tokens

    def holders(
        self, keys: Sequence[int], among: int, least: int, most: int, turn: int
    ) -> tuple[list[tuple[int, int]], int]:
        """(slot, tokens) of at most `most` replicas of `among` that have a longer beginning of this prompt than the one
        in slot `least`, the longest first; and what that one has.

        Of many that have the same, those from slot `turn` on, so that it is other ones each time.
        """
        found: list[tuple[int, int]] = []
        bit = 1 << least
        among |= bit
        count = len(keys)
        while count := self._longest(keys, among, count):
            tokens = EDGES[count - 1]
            having = self._holders[keys[count - 1]] & among
            if having & bit:
                return found, tokens
            among ^= having
            after = having >> turn << turn
            for part in (after, having ^ after):
                while part and len(found) < most:
                    lowest = part & -part
                    part ^= lowest
                    found.append((lowest.bit_length() - 1, tokens))
            if len(found) == most:
                return found, self.hit(least, keys)
        return found, 0

    def common(self, keys: Sequence[int], among: int, number: int) -> int:
        """Tokens of this prompt that more than `number` replicas of `among` have."""
        holders = self._holders
        low, high = 0, len(keys)
        while low < high:
            middle = (low + high) // 2
            if (holders.get(keys[middle], 0) & among).bit_count() > number:
                low = middle + 1
            else:
                high = middle
        return EDGES[low - 1] if low else 0

    def _longest(self, keys: Sequence[int], among: int, count: int) -> int:
        """How many of the first `count` keys some replica of `among` has."""
        holders = self._holders
        low, high = 0, count
        while low < high:
            middle = (low + high) // 2
            if holders.get(keys[middle], 0) & among:
                low = middle + 1
            else:
                high = middle
        return low

    def _evict(self, cache: Cache) -> None:
        held = cache.keys
        most = max(1, MOST_KEYS // len(self._caches))
        while held and (cache.tokens > cache.capacity or len(held) > most):
            key, span = held.popitem(last=False)
            cache.tokens -= span
            self._let_go(key, cache.slot)

    def _let_go(self, key: int, slot: int) -> None:
        left = self._holders[key] & ~(1 << slot)
        if left:
            self._holders[key] = left
        else:
            del self._holders[key]
