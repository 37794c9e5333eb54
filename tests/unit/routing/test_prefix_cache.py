"""The tree of one replica's cache keeps what a list of all its keys, in the order of their last use, would keep."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from kilocard.core.prefix import EDGES, block_keys
from kilocard.routing.prefix_cache import COVERED, Cache


class PlainCache:
    """The same without a tree: each key moves with each use, those at the end of a chain first."""

    def __init__(self, capacity: float) -> None:
        self.capacity = capacity
        self.keys: OrderedDict[int, int] = OrderedDict()

    def use(self, keys: Sequence[int]) -> None:
        for place in reversed(range(len(keys))):
            self.keys[keys[place]] = COVERED[place + 1] - COVERED[place]
            self.keys.move_to_end(keys[place])

    def evict(self, most: int) -> list[int]:
        gone = []
        while self.keys and (sum(self.keys.values()) > self.capacity or len(self.keys) > most):
            gone.append(self.keys.popitem(last=False)[0])
        return gone


def check(cache: Cache) -> None:
    """Each key is in one stretch, tokens are what the stretches cover, and what nothing follows can be evicted."""
    stretches = set(cache.held.values())
    assert sum(len(stretch.keys) for stretch in stretches) == len(cache.held)
    assert all(cache.held[key] is stretch for stretch in stretches for key in stretch.keys)
    covered = [COVERED[stretch.start + len(stretch.keys)] - COVERED[stretch.start] for stretch in stretches]
    assert cache.tokens == sum(covered)
    assert all(stretch.followers or stretch in cache.ends for stretch in stretches)
    assert all(stretch.before is None or stretch.before in stretches for stretch in stretches)
    assert sum(stretch.followers for stretch in stretches) == sum(stretch.before is not None for stretch in stretches)


#: prompts that share their beginnings: a stem, a turn in which they part, and so many blocks behind
prompts = st.tuples(st.integers(0, 1), st.integers(0, 6), st.integers(0, 3), st.integers(0, 14)).map(
    lambda p: block_keys([p[0], *range(p[1]), 100 + p[2], *range(200, 200 + p[3])], 256)
)


@given(st.lists(st.tuples(prompts, st.sampled_from([500.0, 3000.0, 20_000.0]), st.sampled_from([3, 9, 100]))))
def test_what_is_kept_is_what_was_used_last_and_a_chain_goes_from_its_end(
    uses: list[tuple[tuple[int, ...], float, int]],
) -> None:
    cache, plain = Cache(0, 0.0), PlainCache(0.0)
    for keys, capacity, most in uses:
        matched = cache.matched(keys, len(keys))
        assert matched == sum(key in plain.keys for key in keys)
        assert cache.use(keys, matched) == keys[matched:]
        plain.use(keys)
        cache.capacity = plain.capacity = capacity
        assert sorted(cache.evict(most)) == sorted(plain.evict(most))
        assert set(cache.held) == set(plain.keys)
        check(cache)


@given(st.lists(st.tuples(st.lists(st.integers(1, 12), max_size=8), st.integers(0, 8)), max_size=30))
def test_keys_that_are_equal_by_accident_break_nothing(uses: list[tuple[list[int], int]]) -> None:
    """No chains at all: any key may come anywhere, again and again, and whatever is said to be known of them."""
    cache = Cache(0, 2000.0)
    for keys, said in uses:
        known = [place + 1 for place, key in enumerate(keys) if key in cache.held]
        cache.use(keys, known[said % len(known)] if known else 0)
        cache.evict(8)
        check(cache)
        assert cache.tokens <= 2000.0 and len(cache.held) <= 8
    cache.capacity = 0.0
    cache.evict(0)
    assert not cache.held and not cache.ends and not cache.tokens


def test_a_prompt_that_is_used_again_costs_one_step_whatever_its_length() -> None:
    cache = Cache(0, 1e9)
    keys = block_keys(range(390), 256)
    cache.use(keys, 0)
    for _ in range(3):
        assert cache.use(keys, len(keys)) == ()
    assert len(cache.ends) == 1 and cache.tokens == EDGES[len(keys) - 1]
