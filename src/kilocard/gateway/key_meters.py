"""How the sources of keys are doing, on the metrics page."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kilocard.metrics import names
from kilocard.metrics.render import Registry
from kilocard.tenancy.keys import Source


class KeyMeters:
    """Gauges that are set when the page is asked for."""

    def __init__(self, sources: Callable[[], Iterable[Source]], registry: Registry) -> None:
        self._sources = sources
        self._keys = registry.gauge(names.KEYS)
        self._up = registry.gauge(names.KEY_SOURCE_UP)
        self._age = registry.gauge(names.KEY_SOURCE_AGE)
        registry.before_page.append(self.refresh)

    def refresh(self) -> None:
        for source in self._sources():
            self._keys.labels(source.name).set(source.keys)
            self._up.labels(source.name).set(0 if source.problem else 1)
            self._age.labels(source.name).set(source.age)
