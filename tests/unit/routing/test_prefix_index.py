"""What replicas are believed to have cached: true to what was sent there, bounded, forgotten when it is lost."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kilocard.core.prefix import EDGES, block_keys, key_of
from kilocard.routing import prefix_index
from kilocard.routing.prefix_index import PrefixIndex
from kilocard.routing.ring import Ring

KEYS = block_keys(range(32), 256)  # 8,192 tokens, 16 keys


def index(slots: int = 3, capacity: float = 1e6) -> PrefixIndex:
    made = PrefixIndex()
    for slot in range(slots):
        made.add(slot, capacity)
    return made


def test_who_was_sent_a_prompt_has_it_and_its_beginnings() -> None:
    known = index()
    known.put(1, KEYS, 8200)
    assert known.hit(1, KEYS) == 8192
    assert known.hit(1, KEYS[:3]) == 768
    longer = block_keys([*range(16), *range(100, 120)], 256)
    assert known.hit(1, longer) == 4096
    assert known.hit(0, KEYS) == 0
    assert known.holders(longer, 0b111, least=0, most=4, turn=0) == ([(1, 12, 4096)], 0)


def test_only_who_has_more_than_the_least_loaded_is_looked_at() -> None:
    known = index(4)
    known.put(0, KEYS, 8200)
    known.put(1, KEYS[:7], 2100)
    known.put(2, KEYS[:7], 2100)
    assert known.holders(KEYS, 0b1111, least=1, most=4, turn=0) == ([(0, 16, 8192)], 7)
    assert known.holders(KEYS, 0b1110, least=3, most=4, turn=2) == ([(2, 7, 1792), (1, 7, 1792)], 0)
    assert known.holders(KEYS, 0b1111, least=0, most=4, turn=0) == ([], 16)


def test_of_many_holders_others_have_their_turn() -> None:
    known = index(100)
    for slot in range(1, 100):
        known.put(slot, KEYS, 8200)
    looked = {slot for turn in range(100) for slot, _, _ in known.holders(KEYS, (1 << 100) - 1, 0, 4, turn)[0]}
    assert looked == set(range(1, 100))


def test_a_chain_is_evicted_from_its_end_and_the_oldest_first() -> None:
    known = index(1, capacity=10_000)
    other = block_keys(range(100, 132), 256)
    known.put(0, KEYS, 8200)
    known.put(0, other, 8200)
    assert known.hit(0, other) == 8192
    left = known.hit(0, KEYS)
    assert 0 < left <= 10_000 - 8192, "its beginning is what stays"
    known.put(0, KEYS[:4], 1100)
    known.put(0, block_keys(range(200, 210), 256), 2600)
    assert known.hit(0, KEYS) == 1024, "what is used again stays"
    assert known.hit(0, other) < 8192


def test_what_was_used_again_is_evicted_from_its_end_too() -> None:
    known = index(1, capacity=8192 + 2048)
    for _ in range(3):
        known.put(0, KEYS[:8], 2100)
    known.put(0, block_keys(range(100, 133), 256), 8500)
    assert known.hit(0, KEYS) == 2048
    known.resize(0, 8192 + 1100)
    assert known.hit(0, KEYS) == 1024


def test_23_memory_is_bounded_by_what_replicas_can_hold_and_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix_index, "MOST_KEYS", 600)
    monkeypatch.setattr(prefix_index, "MOST_SESSIONS", 50)
    known = index(3, capacity=1e9)
    for number in range(1000):
        known.put(number % 3, block_keys([number, *range(30)], 256), 8000, session=number + 1)
        assert len(known) <= 600 and known.sessions <= 50 and known.distinct <= len(known)
    for slot in range(3):
        known.drop(slot)
    assert len(known) == known.distinct == 0, "nothing is left of replicas that are gone"


def test_a_session_is_where_it_was_last_until_that_is_lost_or_overwritten() -> None:
    known = index(2, capacity=50_000)
    known.put(0, (), 5000, session=7)
    assert known.session(7) == (0, 5000)
    known.put(1, (), 6000, session=7)
    assert known.session(7) == (1, 6000)
    for number in range(10):
        known.put(1, block_keys(range(1000 * number, 1000 * number + 32), 256), 8192)
    assert known.session(7) is None, "50,000 tokens later it is evicted"
    known.put(0, (), 5000, session=8)
    known.add(0, 50_000)
    assert known.session(8) is None, "started anew, empty"


class Machine(RuleBasedStateMachine):
    """Against the plain truth: a chain's keys in each cache, whatever is put, dropped or resized in between."""

    def __init__(self) -> None:
        super().__init__()
        self.index = index(4, capacity=6000)
        self.capacity = dict.fromkeys(range(4), 6000.0)

    @rule(slot=st.integers(0, 3), stem=st.integers(0, 3), tail=st.integers(0, 5), length=st.integers(1, 40))
    def put(self, slot: int, stem: int, tail: int, length: int) -> None:
        keys = block_keys([stem, *range(10), tail, *range(length)], 256)
        self.index.put(slot, keys, 256 * (length + 12), session=tail)
        if EDGES[len(keys) - 1] <= self.capacity[slot]:
            assert self.index.hit(slot, keys) == EDGES[len(keys) - 1]

    @rule(slot=st.integers(0, 3))
    def lose(self, slot: int) -> None:
        self.index.add(slot, self.capacity[slot])

    @rule(slot=st.integers(0, 3), capacity=st.sampled_from([0.0, 1000.0, 6000.0]))
    def resize(self, slot: int, capacity: float) -> None:
        self.capacity[slot] = capacity
        self.index.resize(slot, capacity)

    @invariant()
    def the_two_sides_agree(self) -> None:
        caches = self.index._caches
        truth: dict[int, int] = {}
        for slot, cache in caches.items():
            assert cache.tokens <= max(self.capacity[slot], 0)
            for key in cache.held:
                truth[key] = truth.get(key, 0) | 1 << slot
        assert truth == self.index._holders

    @invariant()
    def who_has_a_key_has_all_before_it(self) -> None:
        for stem in range(4):
            for tail in range(6):
                keys = block_keys([stem, *range(10), tail, *range(40)], 256)
                for cache in self.index._caches.values():
                    had = [key in cache.held for key in keys]
                    assert had == sorted(had, reverse=True)


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=15, stateful_step_count=20, deadline=None)


def test_lb_13_all_processes_agree_on_homes_and_one_that_goes_moves_its_own_share_only() -> None:
    names = [f"pool/10.0.0.{number}:8000" for number in range(8)]
    one, other = Ring(), Ring()
    for slot, name in enumerate(names):
        one.add(name, slot)
    for slot, name in enumerate(reversed(names)):  # another process has met them in another order
        other.add(name, 7 - slot)
    keys = [key_of(b"conversation %d" % number) for number in range(4000)]
    homes = [one.home(key, 255) for key in keys]
    assert homes == [other.home(key, 255) for key in keys]
    share = [homes.count(slot) / 4000 for slot in range(8)]
    assert min(share) > 0.04 and max(share) < 0.3
    away = [one.home(key, 255 & ~(1 << 3)) for key in keys]
    one.remove(3)
    gone = [one.home(key, 255) for key in keys]
    assert away == gone, "not available and gone are the same: the next on the ring"
    moved = [before for before, after in zip(homes, gone, strict=True) if before != after]
    assert set(moved) == {3}
    assert one.home(keys[0], 0) is None


def test_a_replica_that_comes_back_has_its_old_homes() -> None:
    ring = Ring()
    for slot in range(5):
        ring.add(f"r{slot}", slot)
    rng = Random(1)
    keys = [rng.getrandbits(48) for _ in range(500)]
    before = [ring.home(key, 31) for key in keys]
    ring.remove(2)
    ring.add("r2", 2)
    assert [ring.home(key, 31) for key in keys] == before


@given(st.integers(0, 40))
def test_the_same_prompt_again_adds_nothing(length: int) -> None:
    known = index(1)
    keys = block_keys(range(length), 256)
    known.put(0, keys, 256 * length)
    size = len(known)
    known.put(0, keys, 256 * length)
    assert len(known) == size == len(keys)
