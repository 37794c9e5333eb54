"""Samples → what the page says of a replica. The rules here hold for the exact and for the fast way."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from math import inf

from kilocard.core.load import LoadSample
from kilocard.metrics.dialect import Dialect
from kilocard.metrics.exact import Labels, Sample

#: the usable readings of one metric name, in page order
Readings = list[tuple[Labels, float]]
#: name → its readings on the page
Look = Callable[[str], Readings]

_SUFFIX = "_total"
#: no engine has as many requests. What is more is the underflow of an unsigned number (2³² − 1, 2⁶⁴ − 1) or other junk
MOST_REQUESTS = 1e9


def spellings(name: str) -> tuple[str, str]:
    """A counter's name with and without `_total`, as written first: text and OpenMetrics pages differ."""
    if name.endswith(_SUFFIX):
        return name, name.removesuffix(_SUFFIX)
    return name, name + _SUFFIX


def counted(readings: Readings, dialect: Dialect, models: Collection[str]) -> Readings:
    """The readings that count: sound, of the aggregate, of the wanted models, and each series once.

    Gauges and counters of requests, tokens and KV use are never negative or infinite, so such a value is junk. With
    `models`, series of other models are left out, but only where some series is of a wanted model: a replica
    whose engine knows its model by another name still has a load. Series that differ only in the labels of
    `copies_over` are one series, and the first of them on the page speaks for it.
    """
    sound = [reading for reading in readings if 0.0 <= reading[1] < inf]
    for label, wanted in dialect.aggregate:
        sound = [reading for reading in sound if reading[0].get(label, wanted) == wanted]
    if len(sound) < 2:
        return sound
    if models:
        named = [reading[0].get("model_name") for reading in sound]
        if any(name in models for name in named):
            sound = [reading for reading, name in zip(sound, named, strict=True) if name is None or name in models]
    copies = dialect.copies_over
    first: dict[frozenset[tuple[str, str]], tuple[Labels, float]] = {}
    for reading in sound:
        key = frozenset(pair for pair in reading[0].items() if pair[0] not in copies)
        first.setdefault(key, reading)
    return list(first.values())


def assemble(look: Look, dialect: Dialect, at: float, models: Collection[str]) -> LoadSample:
    """Fill a LoadSample from whatever can look a name up."""

    def first(names: Sequence[str]) -> Readings:
        for name in names:
            readings = look(name)
            if readings and (readings := counted(readings, dialect, models)):
                return readings
        return []

    def gauge(names: Sequence[str]) -> float | None:
        readings = [reading for reading in first(names) if reading[1] < MOST_REQUESTS]
        return sum([value for _, value in readings]) if readings else None

    def counter(names: Sequence[str]) -> float | None:
        for name in names:
            if readings := first(spellings(name)):
                return sum([value for _, value in readings])
        return None

    def fullest(names: Sequence[str]) -> float | None:
        readings = first(names)
        return min(1.0, max([value for _, value in readings])) if readings else None

    return LoadSample(
        at=at,
        running=gauge(dialect.running),
        waiting=gauge(dialect.waiting),
        kv_usage=fullest(dialect.kv_usage),
        preemptions_total=counter(dialect.preemptions_total),
        prompt_tokens_total=counter(dialect.prompt_tokens_total),
        generation_tokens_total=counter(dialect.generation_tokens_total),
        prefix_queries_total=counter(dialect.prefix_queries_total),
        prefix_hits_total=counter(dialect.prefix_hits_total),
        kv_tokens=_kv_tokens(first((dialect.kv_config[0],)), dialect) if dialect.kv_config else None,
    )


def sample_from(samples: Iterable[Sample], dialect: Dialect, at: float, models: Collection[str] = ()) -> LoadSample:
    """The exact way. `at` is the time of the scrape in the caller's seconds; `models` filters by `model_name`."""
    by_name: dict[str, Readings] = {}
    for sample in samples:
        by_name.setdefault(sample.name, []).append((sample.labels, sample.value))
    return assemble(lambda name: by_name.get(name, []), dialect, at, models)


def says_nothing(sample: LoadSample) -> bool:
    """No quantity was on the page: it speaks another dialect, or the engine's statistics are off."""
    return all(value is None for value in sample[1:])


def kv_block_size(samples: Iterable[Sample], dialect: Dialect) -> int | None:
    """Tokens of a KV block; None: the engine does not state it, or has several sizes."""
    if dialect.kv_config is None:
        return None
    name, label, _ = dialect.kv_config
    sizes = {_whole(sample.labels.get(label)) for sample in samples if sample.name == name}
    return sizes.pop() if len(sizes) == 1 else None


def _kv_tokens(readings: Readings, dialect: Dialect) -> float | None:
    """KV capacity of all engines of the replica, in tokens."""
    tokens = [size for labels, _ in readings if (size := _capacity(labels, dialect)) is not None]
    return float(sum(tokens)) if tokens else None


def _capacity(labels: Labels, dialect: Dialect) -> int | None:
    assert dialect.kv_config is not None
    if dialect.kv_tokens_label is not None:
        # Better than the product: hybrid models share blocks between layers, so blocks × size is not tokens.
        stated = _whole(labels.get(dialect.kv_tokens_label))
        if stated is not None:
            return stated
    _, block, count = dialect.kv_config
    size, blocks = _whole(labels.get(block)), _whole(labels.get(count))
    return None if size is None or blocks is None else size * blocks


def _whole(text: str | None) -> int | None:
    """A positive whole number, as label text ("None" and "0" are engines' words for unknown)."""
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 18:
        return None
    return int(text) or None
