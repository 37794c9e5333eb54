"""Who writes records down, and how they are doing, on the metrics page."""

from __future__ import annotations

from typing import Protocol

from kilocard.metrics import names
from kilocard.metrics.render import Registry
from kilocard.tenancy.usage import Record


class Writer(Protocol):
    """Takes records off the event loop's hands at once, and keeps count."""

    @property
    def name(self) -> str: ...
    @property
    def written(self) -> int: ...
    @property
    def dropped(self) -> int: ...
    @property
    def errors(self) -> int: ...
    @property
    def backlog(self) -> int: ...

    def add(self, record: Record) -> None: ...


class WriterMeters:
    """How the writers are doing, read when the page is asked for."""

    def __init__(self, writers: list[Writer], registry: Registry) -> None:
        self._writers = writers
        self._written = registry.counter(names.RECORDS_WRITTEN)
        self._dropped = registry.counter(names.RECORDS_DROPPED)
        self._errors = registry.counter(names.RECORD_WRITE_ERRORS)
        self._backlog = registry.gauge(names.RECORDS_WAITING)
        registry.before_page.append(self.refresh)

    def refresh(self) -> None:
        for writer in self._writers:
            self._written.labels(writer.name).value = writer.written
            self._dropped.labels(writer.name).value = writer.dropped
            self._errors.labels(writer.name).value = writer.errors
            self._backlog.labels(writer.name).set(writer.backlog)
