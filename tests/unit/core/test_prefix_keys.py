"""Keys of a prompt's beginning: equal as far as the prompts are, and no further."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kilocard.core.prefix import EDGES, block_keys, edges_within, key_of, of_blocks, text_keys


def shared(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """How many keys are equal from the start."""
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count


def test_edges_are_close_at_first_and_a_fifth_apart_later() -> None:
    assert EDGES[:6] == (256, 512, 768, 1024, 1280, 1536)
    assert all(later <= max(earlier + 256, earlier * 1.25) for earlier, later in pairwise(EDGES))
    assert (edges_within(255), edges_within(256), edges_within(100_000)) == (0, 1, 30)


@given(st.binary(max_size=9000), st.binary(max_size=9000), st.binary(max_size=9000))
def test_texts_share_keys_as_far_as_they_are_equal(start: bytes, one: bytes, other: bytes) -> None:
    a, b = text_keys(start + b"A" + one, 4), text_keys(start + b"B" + other, 4)
    equal = edges_within(len(start) // 4)
    assert shared(a, b) == min(equal, len(a), len(b))
    assert not set(a[equal:]) & set(b[equal:]), "what comes behind a difference differs, even if it is the same text"


@given(st.integers(1, 3000), st.integers(1, 700), st.sampled_from([16, 256, 512]))
def test_blocks_share_keys_only_where_whole_blocks_are_shared(common: int, rest: int, size: int) -> None:
    blocks = list(range(common))
    a, b = (block_keys([*blocks, *range(start, start + rest)], size) for start in (10_000, 20_000))
    count = shared(a, b)
    assert count == min(edges_within(common * size), len(a))
    assert len(set(a)) == len(a), "a block longer than a chunk has a key for each chunk"


def test_a_simulator_names_the_conversation_or_lets_its_beginning_stand_for_it() -> None:
    assert of_blocks(100, [], 0) is None
    assert of_blocks(100, [1], 16) is None, "shorter than a chunk: nothing to tell"
    one, other = (of_blocks(9000, [*range(8), n], 512) for n in (1, 2))
    assert one is not None and other is not None
    assert one.home == other.home != 0
    named = of_blocks(9000, range(9), 512, "s1")
    assert named is not None and named.home == key_of(b"s1")
