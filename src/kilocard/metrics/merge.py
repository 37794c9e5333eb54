"""The registries of several processes as one page. Pure: numbers, not text.

Counters and histograms are summed, gauges by what they mean (`Metric.merge`). A process that is gone goes on counting
through its `Totals`, so nothing that was counted is lost and no counter falls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kilocard.metrics.meters import Counter, Histogram
from kilocard.metrics.names import Metric
from kilocard.metrics.render import Gauge, Registry


class Series(NamedTuple):
    """One series: label values, and [value] or, for a histogram, [sum, count of each bucket …]."""

    labels: tuple[str, ...]
    numbers: list[int | float]


#: the series of each family, by its name
Page = dict[str, list[Series]]


def page(registry: Registry, *, gauges: bool = True) -> Page:
    """A registry's data as it is now. Without gauges it is enough for Totals."""
    for refresh in registry.before_page:
        refresh()
    out: Page = {}
    for family in registry.families:
        if gauges or family.metric.kind != "gauge":
            out[family.metric.name] = [
                Series(labels, numbers)
                for labels, child in family.children.items()
                if (numbers := _numbers(child)) is not None
            ]
    return out


def _numbers(child: Counter | Gauge | Histogram) -> list[float] | None:
    if isinstance(child, Histogram):
        return [child.sum, *child.counts]
    return None if child.value is None else [child.value]


class Totals:
    """Counters and histograms of processes that are gone, summed."""

    def __init__(self) -> None:
        self._sums: dict[str, dict[tuple[str, ...], list[float]]] = {}

    def add(self, gone: Page, metrics: Mapping[str, Metric]) -> None:
        for name, rows in gone.items():
            if name in metrics and metrics[name].kind != "gauge":
                sums = self._sums.setdefault(name, {})
                for labels, numbers in rows:
                    _add(sums, labels, numbers)

    @property
    def page(self) -> Page:
        return {name: [Series(*row) for row in sums.items()] for name, sums in self._sums.items()}


def _add(sums: dict[tuple[str, ...], list[float]], labels: tuple[str, ...], numbers: list[float]) -> None:
    old = sums.get(labels)
    sums[labels] = numbers if old is None else [a + b for a, b in zip(old, numbers, strict=True)]


def merged(metrics: Iterable[Metric], pages: Iterable[Page], workers: int) -> Registry:
    """One registry of many pages, ready to be rendered. `workers` processes disagree about gauges of merge "mean"."""
    registry = Registry()
    pages = list(pages)
    for metric in metrics:
        rows = [row for each in pages for row in each.get(metric.name, ())]
        if metric.kind == "counter":
            counters = registry.counter(metric)
            for labels, (value,) in rows:
                counters.labels(*labels).value += value
        elif metric.kind == "histogram":
            histograms = registry.histogram(metric)
            for labels, (total, *counts) in rows:
                child = histograms.labels(*labels)
                child.sum += total
                child.counts = [old + int(new) for old, new in zip(child.counts, counts, strict=True)]
        else:
            gauges = registry.gauge(metric)
            for labels, (value,) in rows:
                gauge = gauges.labels(*labels)
                gauge.set(_gauge(metric, gauge.value, value, workers))
    return registry


def _gauge(metric: Metric, old: float | None, new: float, workers: int) -> float:
    if metric.merge == "max":
        return new if old is None else max(old, new)
    part = new / max(1, workers) if metric.merge == "mean" else new
    return part if old is None else old + part
