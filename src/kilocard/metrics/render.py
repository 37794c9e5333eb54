"""Our own metrics page: a small registry and the exposition writer (Prometheus text 0.0.4).

The hot path holds a child (`requests.labels("qwen", "qwen-v1", "ok")`, resolved once) and calls `inc()` or
`observe()`: an addition, or a bisect and two additions. All else happens when the page is read.
Not thread-safe: one event loop owns a registry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import inf, isnan
from typing import Generic, TypeVar

from kilocard.metrics.meters import Counter, Histogram
from kilocard.metrics.names import OTHER, Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

#: series that one family may hold before further label values are counted under OTHER
MAX_SERIES = 10_000


class Gauge:
    """Set freely. None is unknown: the series is then left out of the page, never written as 0 or NaN."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float | None = None

    def set(self, value: float | None) -> None:
        self.value = value


Child = TypeVar("Child", Counter, Gauge, Histogram)


class Family(Generic[Child]):
    """All series of one metric."""

    def __init__(self, metric: Metric, make: Callable[[], Child], max_series: int = MAX_SERIES) -> None:
        self.metric = metric
        self.max_series = max_series
        #: label values → child, in order of first use
        self.children: dict[tuple[str, ...], Child] = {}
        #: series that were counted under OTHER because the family was full
        self.folded = 0
        self._make: Callable[[], Child] = make
        if not metric.labels:
            self.children[()] = make()

    def labels(self, *values: str) -> Child:
        """The child for these label values, in the order of the metric's labels; made on first use."""
        child = self.children.get(values)
        if child is None:
            if len(values) != len(self.metric.labels):
                raise ValueError(f"{self.metric.name} has the labels {self.metric.labels}, got {values}")
            if len(self.children) >= self.max_series:
                self.folded += 1
                values = (OTHER,) * len(values)
                child = self.children.get(values)
                if child is not None:
                    return child
            child = self.children[values] = self._make()
        return child

    @property
    def only(self) -> Child:
        """The child of a metric without labels."""
        return self.children[()]

    def remove(self, *values: str) -> None:
        """Forget a series, e.g. of a replica that is gone. Unknown ones are ignored."""
        self.children.pop(values, None)


AnyFamily = Family[Counter] | Family[Gauge] | Family[Histogram]
F = TypeVar("F", Family[Counter], Family[Gauge], Family[Histogram])


class Registry:
    """Families in the order in which they were added; `render()` writes the page."""

    def __init__(self) -> None:
        self._families: list[AnyFamily] = []
        #: called before each page: sets gauges that are cheaper to read than to keep up to date
        self.before_page: list[Callable[[], None]] = []

    def counter(self, metric: Metric) -> Family[Counter]:
        return self._add(Family(_checked(metric, "counter"), Counter))

    def gauge(self, metric: Metric) -> Family[Gauge]:
        return self._add(Family(_checked(metric, "gauge"), Gauge))

    def histogram(self, metric: Metric) -> Family[Histogram]:
        bounds = _checked(metric, "histogram").buckets
        if not bounds or list(bounds) != sorted(set(bounds)) or bounds[-1] == inf:
            raise ValueError(f"{metric.name}: buckets must rise and leave out +Inf, got {bounds}")
        return self._add(Family(metric, lambda: Histogram(bounds)))

    def _add(self, family: F) -> F:
        if any(other.metric.name == family.metric.name for other in self._families):
            raise ValueError(f"{family.metric.name} is registered already")
        self._families.append(family)
        return family

    @property
    def families(self) -> Sequence[AnyFamily]:
        return self._families

    def render(self) -> bytes:
        """The page. Families without a series keep their HELP and TYPE, so that their names can be found."""
        for refresh in self.before_page:
            refresh()
        lines: list[str] = []
        for family in self._families:
            metric = family.metric
            lines.append(f"# HELP {metric.name} {escape_help(metric.help)}")
            lines.append(f"# TYPE {metric.name} {metric.kind}")
            for values, child in family.children.items():
                pairs = [f'{label}="{escape(value)}"' for label, value in zip(metric.labels, values, strict=True)]
                lines.extend(_lines(metric.name, pairs, child))
        lines.append("")
        return "\n".join(lines).encode("utf-8", "replace")


def _checked(metric: Metric, kind: str) -> Metric:
    if metric.kind != kind:
        raise ValueError(f"{metric.name} is a {metric.kind}, not a {kind}")
    return metric


def _lines(name: str, pairs: list[str], child: Counter | Gauge | Histogram) -> Iterator[str]:
    labels = "{" + ",".join(pairs) + "}" if pairs else ""
    if not isinstance(child, Histogram):
        if child.value is not None and not isnan(child.value):
            yield f"{name}{labels} {written(child.value)}"
        return
    total = 0
    for bound, count in zip((*child.bounds, inf), child.counts, strict=True):
        total += count
        inside = ",".join([*pairs, f'le="{written(bound)}"'])
        yield f"{name}_bucket{{{inside}}} {total}"
    yield f"{name}_sum{labels} {written(child.sum)}"
    yield f"{name}_count{labels} {total}"


def escape(value: str) -> str:
    """A label value. Other odd characters (U+2028, braces, commas) are allowed as they are."""
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return value


def escape_help(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def written(value: float) -> str:
    """A value in the format's own words: Python's "inf" and "nan" are not among them."""
    if isnan(value):
        return "NaN"
    if value == inf:
        return "+Inf"
    if value == -inf:
        return "-Inf"
    return repr(value)
