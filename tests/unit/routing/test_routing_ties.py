"""Equal scores: chance decides, and never for long in favour of one replica."""

from __future__ import annotations

from itertools import groupby
from random import Random

from kilocard.routing.index import LoadIndex


def test_ties_of_an_idle_pool_do_not_stick_to_one_replica() -> None:
    """One request at a time on two idle replicas: runs on one of them stay short, however long it goes on."""
    index = LoadIndex(Random(7))
    index.put("a", 0.0)
    index.put("b", 0.0)
    chosen = []
    for _ in range(4000):
        top = index.best()
        assert top is not None
        chosen.append(top[2])
        index.put(top[2], 1.0)
        index.put(top[2], 0.0)
    longest = max(len(list(run)) for _, run in groupby(chosen))
    assert longest <= 8
    assert 1800 < chosen.count("a") < 2200
