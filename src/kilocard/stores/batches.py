"""Records on their way out of the event loop: the loop appends them, a thread writes them in batches.

A batch goes as soon as it is full: its records are then still in the processor's cache, and few wait. What a crash can
lose is what came within the last `every` seconds, and the batch that is being written. A place that
can't be written to (database down, disk full, closed pipe) is tried again with back-off; meanwhile `limit` records may
wait, then the oldest are dropped and counted. Serving goes on whatever happens here.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from typing import Generic, Protocol, TypeVar

from kilocard.tenancy.usage import Record

log = logging.getLogger("kilocard.records")

#: records that may wait; about 50 MB
LIMIT = 100_000
#: records of one write. The event loop stands still while a sink prepares them, since that holds the interpreter: as
#: many as take less than a millisecond. After each batch the loop has its turn for so many seconds
BATCH = 250
TURN = 0.0005
#: seconds between two tries: doubled from the first to the last
BACKOFF, BACKOFF_MAX = 0.1, 5.0
#: how long a stop goes on trying to write what is left, in seconds
LAST_TRIES = 5.0

P = TypeVar("P")


class Unwritable(Exception):
    """This batch can't be written, however often it is tried."""


class Sink(Protocol[P]):
    """Where batches go. Called by one thread. Any exception but Unwritable means: try again later."""

    def prepare(self, records: list[Record], utc: float) -> P:
        """What `write` takes. `utc`: to be added to a record's times for Unix seconds."""
        ...

    def write(self, prepared: P) -> None:
        """After a failure it is called again with the same; nothing may then be written twice."""
        ...

    def tidy(self, now: float) -> None:
        """After each round. `now`: Unix seconds."""
        ...

    def close(self) -> None: ...


class BatchWriter(Generic[P]):
    """`add` may be called from one thread (the event loop's); figures may be read from any."""

    def __init__(
        self,
        name: str,
        sink: Sink[P],
        every: float,
        *,
        limit: int = LIMIT,
        batch: int = BATCH,
        backoff: float = BACKOFF,
    ) -> None:
        """`every`: seconds between two writes."""
        self.name = name
        self.written = 0
        self.dropped = 0
        self.errors = 0
        self._sink = sink
        self._every = every
        self._limit = limit
        self._batch = batch
        self._backoff = backoff
        # Appended on one side and taken from the other: a deque does both atomically.
        self._records: deque[Record] = deque()
        self._writing = 0
        self._stop = threading.Event()
        self._wake = threading.Event()  # a batch is full, or it is time to end
        self._give_up_at = 0.0
        self._failing = False
        self._writer = threading.Thread(target=self._run, name=f"kilocard-{name}", daemon=True)

    def start(self) -> None:
        self._writer.start()

    def add(self, record: Record) -> None:
        records = self._records
        if len(records) >= self._limit:
            records.popleft()
            self.dropped += 1
        records.append(record)
        if len(records) == self._batch:  # while it writes, the writer looks by itself
            self._wake.set()

    @property
    def backlog(self) -> int:
        """Records that are not written yet."""
        return len(self._records) + self._writing

    def close(self) -> None:
        """Write what is left and end. Blocks, for about LAST_TRIES at most."""
        self._give_up_at = time.monotonic() + LAST_TRIES
        self._stop.set()
        self._wake.set()
        self._writer.join(LAST_TRIES + 2.0)
        if self.backlog:
            log.error("%s: %d record(s) could not be written before the end", self.name, self.backlog)

    # -- the thread

    def _run(self) -> None:
        all_by = time.monotonic() + self._every
        stopping, writable = False, True
        while writable and not stopping:
            self._wake.wait(max(0.0, all_by - time.monotonic()))
            self._wake.clear()
            stopping = self._stop.is_set()
            while writable and len(self._records) >= self._batch:
                writable = self._write_batch()
                time.sleep(TURN)
            if stopping or time.monotonic() >= all_by:  # what is here now, and no more: a busy loop always has a few
                all_by = time.monotonic() + self._every
                if writable and self._records:
                    writable = self._write_batch()
            try:
                self._sink.tidy(time.time())  # noqa: TID251  # records carry the calendar's time
            except Exception as error:  # the thread has to live
                self._failed(error)
        self._sink.close()

    def _write_batch(self) -> bool:
        """False: it is time to end, and the batch could not be written."""
        records = self._records
        batch = [records.popleft() for _ in range(min(self._batch, len(records)))]
        self._writing = len(batch)
        delay = self._backoff
        try:
            utc = time.time() - time.monotonic()  # noqa: TID251  # same
            prepared = self._sink.prepare(batch, utc)
            while True:
                try:
                    self._sink.write(prepared)
                except Unwritable:
                    raise
                except Exception as error:  # whatever it is: later it may work
                    self._failed(error)
                else:
                    break
                if self._stop.wait(delay):
                    if time.monotonic() > self._give_up_at:
                        return False
                    time.sleep(self._backoff)
                delay = min(delay * 2, BACKOFF_MAX)
        except Exception as error:  # neither prepared nor ever writable
            self.errors += 1
            self.dropped += len(batch)
            log.error("%s: %d record(s) can't be written and are lost: %s", self.name, len(batch), error)
        else:
            self.written += len(batch)
            if self._failing:
                self._failing = False
                log.info("%s: written again", self.name)
        self._writing = 0
        return True

    def _failed(self, error: Exception) -> None:
        self.errors += 1
        if not self._failing:  # once for each outage
            self._failing = True
            log.warning("%s: can't be written to, up to %d records wait: %s", self.name, self._limit, error)
