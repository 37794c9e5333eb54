"""What one replica's KV cache has of the prompts that were sent there, by our belief: a tree of them, bounded."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from kilocard.core.prefix import EDGES

#: tokens that the first so many keys of a prompt cover
COVERED: Final = (0, *EDGES)


class Stretch:
    """Keys of a chain that come one after the other, with no branch between them."""

    __slots__ = ("before", "followers", "keys", "start")

    def __init__(self, keys: tuple[int, ...], start: int, before: Stretch | None) -> None:
        #: never empty
        self.keys = keys
        #: how many keys of the chain come before
        self.start = start
        #: the stretch that they are in; None: the chain begins here
        self.before = before
        #: how many stretches come directly after this one
        self.followers = 0


class Cache:
    """Keys in the order of their last use, that fall out when they would not fit, as in the engine.

    Who uses a prompt uses all its beginnings, and a chain is evicted from its end, so who has a key has all before it.
    A stretch was last used when the last of those was that come after it, and only stretches at whose end a prompt
    ended need a place in the order: a prompt costs a step, not one for each of its keys.
    """

    __slots__ = ("bit", "capacity", "ends", "held", "lost", "slot", "tokens", "written")

    def __init__(self, slot: int, capacity: float) -> None:
        self.slot = slot
        self.bit = 1 << slot
        #: tokens
        self.capacity = capacity
        #: key → the stretch that has it. Each key is in one stretch
        self.held: dict[int, Stretch] = {}
        #: stretches at whose end prompts ended, the next to be evicted first. Those that nothing comes after are here
        self.ends: OrderedDict[Stretch, None] = OrderedDict()
        #: that its keys cover
        self.tokens = 0
        #: tokens that came new into it, ever: how old a session's is
        self.written = 0
        self.lost = False

    def matched(self, keys: Sequence[int], most: int) -> int:
        """How many of the first `most` keys of a prompt it has."""
        held = self.held
        low = 0
        while low < most:
            middle = (low + most) >> 1
            if keys[middle] in held:
                low = middle + 1
            else:
                most = middle
        return low

    def use(self, keys: Sequence[int], matched: int) -> tuple[int, ...]:
        """A prompt is computed, of which it has the first `matched` keys. Returns the keys that are new in it."""
        held, ends = self.held, self.ends
        last = None
        if matched:
            last = held[keys[matched - 1]]
            if last.start < matched < last.start + len(last.keys):
                last = self._split(last, matched - last.start)
        if matched == len(keys):
            if last is not None:
                ends[last] = None
                ends.move_to_end(last)
            return ()
        new = tuple(keys[matched:])
        if not held.keys().isdisjoint(new) or len(set(new)) < len(new):
            new = self._unheard(new)
        if new:
            stretch = Stretch(new, matched, last)
            held.update(dict.fromkeys(new, stretch))
            ends[stretch] = None
            if last is not None:
                last.followers += 1
                ends.pop(last, None)
            self.tokens += COVERED[matched + len(new)] - COVERED[matched]
        return new

    def _unheard(self, keys: tuple[int, ...]) -> tuple[int, ...]:
        """Two beginnings have the same key, by a rare accident: what goes on behind the first such is not looked at."""
        new: dict[int, None] = {}
        for key in keys:
            if key in self.held or key in new:
                break
            new[key] = None
        return tuple(new)

    def _split(self, stretch: Stretch, place: int) -> Stretch:
        """A prompt ends or branches off after so many of its keys. Returns the part before: it is the new one, since
        others know the part behind."""
        first = Stretch(stretch.keys[:place], stretch.start, stretch.before)
        first.followers = 1
        stretch.keys = stretch.keys[place:]
        stretch.start += place
        stretch.before = first
        self.held.update(dict.fromkeys(first.keys, first))
        return first

    def evict(self, most: int) -> list[int]:
        """Let go what does not fit, or is more than `most` keys. Returns these."""
        held, ends = self.held, self.ends
        gone: list[int] = []
        while ends and (self.tokens > self.capacity or len(held) > most):
            stretch = next(iter(ends))
            if stretch.followers:  # what comes after it was used later
                del ends[stretch]
                continue
            keys, start = stretch.keys, stretch.start
            end = start + len(keys)
            fit = bisect_right(COVERED, COVERED[end] - (self.tokens - self.capacity)) - 1
            stay = max(start, min(fit, end - (len(held) - most)))
            for key in keys[stay - start :]:
                del held[key]
                gone.append(key)
            self.tokens -= COVERED[end] - COVERED[stay]
            if stay > start:
                stretch.keys = keys[: stay - start]
                continue
            del ends[stretch]
            before = stretch.before
            if before is not None:
                before.followers -= 1
                if not before.followers and before not in ends:
                    ends[before] = None
                    ends.move_to_end(before, last=False)
        return gone
