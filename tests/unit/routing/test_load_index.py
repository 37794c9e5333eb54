"""The index against the plain way of doing it, and its memory."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from kilocard.routing.index import LoadIndex

NAMES = [f"r{i}" for i in range(8)]
steps = st.lists(st.tuples(st.sampled_from(NAMES), st.one_of(st.none(), st.integers(0, 5))), min_size=1, max_size=200)


@settings(max_examples=100)
@given(steps, st.sets(st.sampled_from(NAMES), max_size=7))
def test_best_is_the_minimum_of_what_is_in(changes: list[tuple[str, int | None]], exclude: set[str]) -> None:
    index = LoadIndex(Random(1))
    model: dict[str, int] = {}
    for name, score in changes:
        if score is None:
            index.discard(name)
            model.pop(name, None)
        else:
            index.put(name, score)
            model[name] = score
        for excluded in (set(), exclude):
            allowed = {n: s for n, s in model.items() if n not in excluded}
            best = index.best(excluded)
            if not allowed:
                assert best is None
            else:
                assert best is not None and best[0] == min(allowed.values()) == allowed[best[2]]
    assert len(index) == len(model)


def test_ties_are_random_not_in_order_of_names() -> None:
    """Chi-square over 8 equal replicas, 8,000 draws: 7 degrees of freedom, 24.3 is p = 0.001."""
    rng = Random(5)
    counts: Counter[str] = Counter()
    for _ in range(8000):
        index = LoadIndex(rng)
        for name in NAMES:
            index.put(name, 1.0)
        best = index.best()
        assert best is not None
        counts[best[2]] += 1
    assert sum((counts[n] - 1000) ** 2 / 1000 for n in NAMES) < 24.3


scored = st.dictionaries(st.sampled_from(NAMES), st.floats(0, 100), min_size=1)


@settings(max_examples=100)
@given(scored, st.floats(0.01, 50), st.integers(0, 2**32))
def test_a_blur_never_chooses_who_is_further_behind_than_that(scores: dict[str, float], blur: float, seed: int) -> None:
    index = LoadIndex(Random(seed))
    for name, score in scores.items():
        index.put(name, score, blur)
    best = index.best()
    assert best is not None and scores[best[2]] <= min(scores.values()) + blur


def test_within_a_blur_chance_decides_and_the_lower_score_is_likelier() -> None:
    rng = Random(5)
    counts: Counter[str] = Counter()
    for _ in range(2000):
        index = LoadIndex(rng)
        for name, score in (("low", 0.0), ("near", 1.0), ("far", 4.0)):
            index.put(name, score, 4.0)
        best = index.best()
        assert best is not None
        counts[best[2]] += 1
    # that near draws at least a quarter less than low: 0.75²/2
    assert 0.25 < counts["near"] / 2000 < 0.31 and counts["far"] == 0


def test_the_order_of_adding_does_not_matter() -> None:
    counts = {}
    for order in (NAMES, NAMES[::-1]):
        rng = Random(5)
        counts[order[0]] = Counter()
        for _ in range(2000):
            index = LoadIndex(rng)
            for name in order:
                index.put(name, 0.0)
            best = index.best()
            assert best is not None
            counts[order[0]][best[2]] += 1
    assert all(abs(counts["r0"][n] - counts["r7"][n]) < 90 for n in NAMES)


def test_memory_stays_flat() -> None:
    index = LoadIndex(Random(1))
    rng = Random(2)
    for _ in range(50_000):
        index.put(rng.choice(NAMES), rng.random())
        assert index.entries <= 2 * len(NAMES) + 64
