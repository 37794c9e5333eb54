"""Keeps a book's budgets through restarts: read at the start, what is used added about once a second."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable

from kilocard.core.errors import StoreError
from kilocard.spec.model import TenantSpec
from kilocard.tenancy.book import Book
from kilocard.tenancy.budget import BudgetKey, BudgetStore
from kilocard.tenancy.limits import has_budgets
from kilocard.tenancy.periods import periods

log = logging.getLogger("kilocard.budgets")

#: seconds between two writes: what a crash can lose
EVERY = 1.0


class BudgetKeeper:
    """A part of a gateway (or of a supervisor that keeps the book for several).

    A store that fails stops nothing: the book goes on counting in memory, `on_error` is called for each failure, and
    what could not be written is written later. The store is read again on each new day, when tenants change, and before
    the first write if it could not be read at the start.
    """

    def __init__(
        self,
        book: Book,
        store: BudgetStore,
        on_error: Callable[[], None],
        *,
        read_at_start: bool = True,
        wall: Callable[[], float] = time.time,  # noqa: TID251  # budgets go by the calendar
    ) -> None:
        """`read_at_start`: False where no tenant has a budget yet, so that no file is made for nothing."""
        self._book = book
        self._store = store
        self._on_error = on_error
        self._read_at_start = read_at_start
        self._wall = wall
        #: the day on which the store was last read
        self._read_on = ""
        self._failing = False
        #: somebody has a budget who may have had none: what was used of it before is not known here
        self._wanted = False
        self._stopping = False
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        if self._read_at_start:
            await self.save()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Write what is left."""
        self._stopping = True
        self._wake.set()
        if self._task is not None:
            await self._task
        await asyncio.to_thread(self._store.close)

    def declare(self, tenants: Iterable[TenantSpec]) -> None:
        """The cluster file has changed."""
        if has_budgets(tenants):
            self._wanted = True
            self._wake.set()

    async def _run(self) -> None:
        stopping = False
        while not stopping:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(EVERY):
                    await self._wake.wait()
            self._wake.clear()
            stopping = self._stopping
            if self._wanted:
                self._wanted, self._read_on = False, ""
                await self.save()
            elif self._book.has_unsaved or (self._read_on and self._read_on != periods(self._wall()).day):
                await self.save()

    async def save(self) -> None:
        """Write what is unsaved and take in what others wrote. Never raises."""
        book = self._book
        unsaved = book.take_unsaved()
        wall = self._wall()
        today = periods(wall).day
        try:
            totals = await asyncio.to_thread(self._exchange, unsaved, wall, self._read_on != today)
        except Exception as error:  # whatever it is: what was used must not be forgotten, and later it may work
            book.put_back(unsaved)
            self._on_error()
            if not self._failing:  # once for each outage
                self._failing = True
                said = error.message if isinstance(error, StoreError) else f"{type(error).__name__}, a fault."
                log.warning("%s Limits are kept in memory until it can be used again.", said)
            return
        if self._failing:
            self._failing = False
            log.info("Budgets are written again.")
        self._read_on = today
        book.correct(totals)

    def _exchange(self, unsaved: dict[BudgetKey, int], wall: float, read: bool) -> dict[BudgetKey, int]:
        """In a thread."""
        totals = self._store.load(wall) if read else {}
        return totals | (self._store.add(unsaved) if unsaved else {})
