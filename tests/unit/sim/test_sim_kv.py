"""Blocks are whole, taken all or none, and never lost."""

from __future__ import annotations

import pytest

from kilocard.sim.kv import BlockPool


def test_blocks_are_whole() -> None:
    pool = BlockPool(4, 16)
    assert [pool.blocks_for(n) for n in (0, 1, 16, 17, 64)] == [0, 1, 1, 2, 4]


def test_all_or_none() -> None:
    pool = BlockPool(4, 16)
    assert pool.take(3)
    assert not pool.take(2)
    assert (pool.free, pool.used, pool.usage) == (1, 3, 0.75)
    pool.give(3)
    assert pool.free == 4


def test_giving_back_too_much_is_a_fault() -> None:
    with pytest.raises(AssertionError):
        BlockPool(4, 16).give(1)


def test_an_empty_pool_makes_no_sense() -> None:
    with pytest.raises(ValueError, match="holds nothing"):
        BlockPool(0, 16)
