"""The decision log: what the dispatcher saw and decided, line by line, in a file that `kilocard replay` plays again.

The event loop only appends to a bounded queue; a thread encodes and writes. Neither a full disk nor a slow one ever
stops serving: what finds no room is lost, counted, and the log goes on from a checkpoint of the dispatcher's state.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, NamedTuple

import msgspec

from kilocard import __version__
from kilocard.core.errors import BackendError
from kilocard.dispatch import checkpoint
from kilocard.dispatch.dispatcher import Dispatcher
from kilocard.dispatch.events import Event
from kilocard.dispatch.instructions import Instruction
from kilocard.dispatch.record import NAMES, SIMPLE, answer_list, to_list
from kilocard.dispatch.replay import Setup, header
from kilocard.metrics import names
from kilocard.metrics.render import Registry
from kilocard.spec.services import RecordSpec

log = logging.getLogger("kilocard.gateway")

#: events that may wait to be written: some 30 MB, five seconds of 2,000 requests a second
QUEUE = 50_000
#: seconds between two looks at the queue: what a crash can lose
EVERY = 0.2
#: lines encoded in one go: the event loop waits for no more than that, some 0.2 ms
BATCH = 100
#: seconds until a file that could not be written is tried again
AGAIN = 5.0
#: seconds between two looks whether the file is still where it was
LOOK = 1.0
#: a file is at least this many times as long as what it begins with, however small `size` is
LEAST_GROWTH = 4


class Checkpoint(NamedTuple):
    """In the queue: the dispatcher's state at this point. `lost`: events before it that are in no file."""

    state: list[Any]
    lost: int


def _line(event: Event, answer: Sequence[Instruction]) -> tuple[Any, ...]:
    line: Any
    kind = type(event)
    line = (NAMES[kind], *event) if kind in SIMPLE else to_list(event)
    return (line, *map(answer_list, answer)) if answer else (line,)


class DecisionLog:
    """One file, and the one before it as `PATH.1`. `handle` takes the place of the dispatcher's own."""

    def __init__(self, spec: RecordSpec, dispatcher: Dispatcher, setup: Setup, registry: Registry) -> None:
        """Begins the file. Raises BackendError where that can't be done."""
        self.path = spec.path
        self._size = spec.size
        self._dispatcher = dispatcher
        self._setup = setup
        counter = registry.counter(names.RECORDED)
        self._written, self._lost = counter.labels("written"), counter.labels("lost")
        registry.before_page.append(self._count)
        self._queue: deque[Any] = deque()
        # Of the event loop's thread. `_wanted` is also set by the writer: it is only ever asked for.
        self._wanted = False
        self._broken = False  # events were lost since the last checkpoint: no line has a meaning before the next
        self._off = False
        self._lost_here = self._told = 0
        # Of the writer's thread.
        self._encode = msgspec.json.Encoder().encode_lines
        self._file: BinaryIO | None = None
        self._skipping = False  # lines make no sense until the next checkpoint
        self._rotating = False
        self._lost_there = self._skipped = 0
        self._lines = 0
        self._end = self._limit = 0  # bytes
        self._retry_at = self._look_at = 0.0
        try:
            self._begin()
        except OSError as error:
            raise BackendError(
                f"gateway.record: can't write {self.path}: {error.strerror or error}. Name a file in a folder that "
                "exists and is writable."
            ) from error
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="decision-log", daemon=True)
        self._thread.start()

    # -- on the event loop

    def recording(self) -> Callable[[Event], Sequence[Instruction]]:
        """`dispatcher.handle`, with each event and its answer noted."""
        queue, inner = self._queue, self._dispatcher.handle
        append = queue.append

        def handle(event: Event) -> Sequence[Instruction]:
            if self._wanted and len(queue) < QUEUE // 2:
                self._mark()
            answer = inner(event)
            if self._broken or len(queue) >= QUEUE:
                self._lost_here += 1
                self._broken = self._wanted = True
            else:
                append((event, answer))
            return answer

        return handle

    def _mark(self) -> None:
        """A checkpoint before the next event."""
        self._wanted = False
        if self._off:
            return
        try:
            state = checkpoint.pack(self._dispatcher)
        except TypeError:
            log.exception("the decision log can't go on: a fault of kilocard")
            self._off = self._broken = True
            return
        self._broken = False
        self._queue.append(Checkpoint(state, self._lost_here - self._told))
        self._told = self._lost_here

    def _count(self) -> None:
        self._written.value = self._lines
        self._lost.value = self._lost_here + self._lost_there

    # -- on the writer's thread

    def _run(self) -> None:
        while not self._stopping.wait(EVERY):
            self._drain()
        self._drain()

    def _drain(self) -> None:
        now = time.monotonic()
        if self._file is None:
            if now >= self._retry_at:
                self._reopen()
        elif now >= self._look_at:
            self._look_at = now + LOOK
            self._follow(self._file)
        queue = self._queue
        batch: list[Any] = []
        while queue:
            item = queue.popleft()
            if type(item) is Checkpoint:
                self._lines_out(batch)
                self._checkpoint(item)
                batch = []
            else:
                batch.append(item)
                if len(batch) >= BATCH:
                    self._lines_out(batch)
                    batch = []
        self._lines_out(batch)

    def _lines_out(self, batch: list[tuple[Event, Sequence[Instruction]]]) -> None:
        if not batch:
            return
        if self._skipping:
            self._lost_there += len(batch)
            return
        try:
            self._write(self._encode([_line(event, answer) for event, answer in batch]))
        except OSError as error:
            self._give_up(error)
            self._lost_there += len(batch)
        except Exception:
            log.exception("the decision log lost some events: a fault of kilocard")
            self._lost_there += len(batch)
            self._skipping = self._wanted = True
        else:
            self._lines += len(batch)
            if self._end >= self._limit and not self._rotating:
                self._rotating = self._wanted = True

    def _checkpoint(self, point: Checkpoint) -> None:
        if self._file is None:
            return
        lost = point.lost + self._lost_there - self._skipped
        try:
            if self._rotating:
                self._begin()
            self._write(self._encode([{"lost": lost, "checkpoint": point.state}]))
        except OSError as error:
            self._give_up(error)
            return
        self._limit = max(self._limit, LEAST_GROWTH * self._end) if self._rotating else self._limit
        self._skipping = self._rotating = False
        self._skipped = self._lost_there

    # -- the file

    def _begin(self) -> None:
        """A new file with its header; what is there becomes PATH.1. Raises OSError."""
        if self._file is not None:
            self._file.close()
            self._file = None
        if os.path.isfile(self.path) and os.path.getsize(self.path):
            os.replace(self.path, self.path + ".1")
        self._open(os.O_TRUNC)
        self._end = 0
        at = time.time()  # noqa: TID251  # when the file was begun, for people and to lay logs side by side
        self._write(self._encode([header(self._setup, __version__, at, time.monotonic())]))
        self._limit = self._size

    def _open(self, flag: int) -> None:
        # its owner's alone: it says who asked when
        self._file = os.fdopen(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | flag, 0o600), "wb", 0)

    def _write(self, data: bytes) -> None:
        assert self._file is not None
        view = memoryview(data)
        while view:  # a disk that fills up takes a part
            view = view[self._file.write(view) :]
        self._end += len(data)

    def _give_up(self, error: OSError) -> None:
        """Take back what is half written; try again later, from a checkpoint."""
        log.warning("decision log %s: %s; events are lost until it can be written", self.path, error.strerror or error)
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.truncate(self._end)
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None
        self._skipping = True
        self._retry_at = time.monotonic() + AGAIN

    def _follow(self, file: BinaryIO) -> None:
        """Others may rotate it too (logrotate): what was moved, removed or cut is begun anew, from a checkpoint."""
        here = os.fstat(file.fileno())
        if here.st_size < self._end:  # cut: what is behind the cut has no beginning
            self._skipping = self._rotating = self._wanted = True
            with contextlib.suppress(OSError):
                file.truncate(0)
            return
        try:
            there = os.stat(self.path)
        except OSError:
            moved = True
        else:
            moved = (there.st_ino, there.st_dev) != (here.st_ino, here.st_dev)
        if moved:  # until the checkpoint the old file goes on
            self._rotating = self._wanted = True

    def _reopen(self) -> None:
        try:
            if os.path.isfile(self.path) and os.path.getsize(self.path) == self._end and self._end:
                self._open(0)
            else:  # moved away, or cut where we could not: a line must not be glued to half a line
                self._begin()
        except OSError:
            self._retry_at = time.monotonic() + AGAIN
            return
        log.info("decision log %s: written again", self.path)
        self._wanted = True

    def close(self) -> None:
        """Write what is left and close. Blocks for as long as the disk takes."""
        self._stopping.set()
        self._thread.join()
        if self._file is not None:
            self._file.close()
