"""Somebody else holds the embedded store's write lock for a while, as a backup or a full disk would."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sqlite3
import time
from pathlib import Path

from benchmarks.soak.history import History
from benchmarks.soak.pauses import rest

PAUSE = (15.0, 30.0)
LOCKED = "ledger locked"
#: some of them outlive the gateway's own patience with the lock (5 s)
LONG = (1.0, 9.0)


class Locks:
    """`store`: held meanwhile, so that nobody of this run expects to write."""

    def __init__(self, path: Path, history: History, store: asyncio.Lock, seed: int) -> None:
        self._path = path
        self._history = history
        self._store = store
        self._rng = random.Random(seed + 66)

    async def run(self, stopping: asyncio.Event) -> None:
        # The longest first: what waits meanwhile is the most memory that the ledger ever takes. Were it to come
        # late, the slope of a run would show when it came, and not whether memory leaks.
        length = max(LONG)
        while await rest(stopping, self._rng.uniform(*PAUSE)):
            async with self._store:
                with contextlib.closing(_connect(self._path)) as database:
                    await asyncio.to_thread(database.execute, "BEGIN IMMEDIATE")
                    span = self._history.begin(LOCKED, time.monotonic())
                    await rest(stopping, length)
                    await asyncio.to_thread(database.execute, "ROLLBACK")
                    span.until = time.monotonic()
            length = self._rng.uniform(*LONG)


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=10.0, isolation_level=None, check_same_thread=False)
