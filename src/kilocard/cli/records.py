"""The ledger and the access log of a gateway: which of them its cluster file asks for, and how long they live."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import ModuleType
from typing import Any

from kilocard.core.errors import UsageError
from kilocard.gateway.plane import Plane
from kilocard.gateway.recorder import Recorder
from kilocard.spec.model import ClusterSpec
from kilocard.stores.access_log import AccessLog
from kilocard.stores.batches import BatchWriter, Sink
from kilocard.stores.usage_sqlite import SqliteLedger
from kilocard.tenancy.usage import keeps_ledger

#: seconds between two writes of the access log
LOG_EVERY = 0.5
#: records of one write: 0.5 µs each to prepare for the ledger, 2.6 µs as a line. Large transactions cost less a row
LEDGER_BATCH, LOG_BATCH = 2_000, 250


class Records:
    """A part of one gateway."""

    def __init__(self, spec: ClusterSpec, plane: Plane, store: Path) -> None:
        """`store`: the embedded store. Raises UsageError where an extra is missing."""
        self._gateway = spec.gateway
        self._ledger = keeps_ledger(spec)
        self._plane = plane
        self._store = store
        self._writers: list[BatchWriter[Any]] = []
        if self._ledger and spec.gateway.usage.database is not None:
            postgres()

    async def start(self) -> None:
        """Raises StoreError where a file can't be opened. A database that is down is waited for while serving."""
        gateway = self._gateway
        ledger = None
        if self._ledger:
            ledger = self._writer("ledger", self._ledger_sink(), gateway.usage.flush, LEDGER_BATCH)
        log = None
        if gateway.access_log is not None:
            log = self._writer("access_log", AccessLog(gateway.access_log.path), LOG_EVERY, LOG_BATCH)
        if ledger is not None or log is not None:
            Recorder(self._plane, ledger=ledger, log=log)

    async def close(self) -> None:
        """Write what is left."""
        await asyncio.gather(*(asyncio.to_thread(writer.close) for writer in self._writers))

    def _ledger_sink(self) -> Sink[Any]:
        usage = self._gateway.usage
        if usage.database is None:
            return SqliteLedger(self._store, usage.keep)
        module = postgres()
        module.check(usage.database)
        sink: Sink[Any] = module.PostgresLedger(usage.database, usage.keep)
        return sink

    def _writer(self, name: str, sink: Sink[Any], every: float, batch: int) -> BatchWriter[Any]:
        writer = BatchWriter(name, sink, every, batch=batch)
        writer.start()
        self._writers.append(writer)
        return writer


def postgres() -> ModuleType:
    """The ledger's module for PostgreSQL. Raises UsageError where its extra is missing."""
    try:
        from kilocard.stores import usage_postgres
    except ImportError as error:
        raise UsageError(
            f"a usage database in PostgreSQL needs the extra postgres: pip install 'kilocard[postgres]' ({error})"
        ) from error
    return usage_postgres
