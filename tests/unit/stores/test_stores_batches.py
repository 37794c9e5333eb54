"""Batches: nothing is written twice, nothing waits without bound, and no failure reaches the loop."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from usage_records import record

from kilocard.stores.batches import BatchWriter, Unwritable
from kilocard.tenancy.usage import Record

NEVER = 3600.0


class Place:
    """A sink that fails when told to. `tries` has each call of write, `kept` what went through."""

    def __init__(self) -> None:
        self.fail: Exception | None = None
        self.fails_left = 0
        self.tries: list[list[int]] = []
        self.kept: list[int] = []
        self.rounds = 0
        self.closed = False
        self.tried = threading.Event()

    def prepare(self, records: list[Record], utc: float) -> list[int]:
        return [int(one.request_id.rpartition(b"-")[2], 16) for one in records]

    def write(self, prepared: list[int]) -> None:
        self.tries.append(prepared)
        self.tried.set()
        if self.fail is not None and self.fails_left > 0:
            self.fails_left -= 1
            raise self.fail
        self.kept += prepared

    def tidy(self, now: float) -> None:
        assert now > 1.7e9  # the calendar's time
        self.rounds += 1

    def close(self) -> None:
        self.closed = True


@contextmanager
def writer_to(place: Place, every: float = NEVER, **more: int) -> Iterator[BatchWriter[list[int]]]:
    writer = BatchWriter("ledger", place, every, backoff=0.001, **more)
    writer.start()
    yield writer
    writer.close()
    assert place.closed


def test_the_end_writes_all_that_is_left_in_order() -> None:
    place = Place()
    with writer_to(place, batch=4) as writer:
        for number in range(10):
            writer.add(record(number))
    assert place.tries == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert (writer.written, writer.backlog, writer.dropped, writer.errors) == (10, 0, 0, 0)


def test_a_full_batch_does_not_wait_and_the_rest_does() -> None:
    place = Place()
    with writer_to(place, batch=3) as writer:
        for number in range(4):
            writer.add(record(number))
        assert place.tried.wait(10.0)
        assert place.tries == [[0, 1, 2]] and writer.backlog >= 1
    assert place.tries == [[0, 1, 2], [3]]


def test_it_writes_while_it_runs() -> None:
    place = Place()
    with writer_to(place, every=0.001) as writer:
        writer.add(record(7))
        assert place.tried.wait(1.0)
    assert place.kept == [7] and place.rounds >= 1


def test_what_failed_is_tried_again_the_same_until_it_works() -> None:
    place = Place()
    place.fail, place.fails_left = OSError("no space left"), 3
    with writer_to(place, batch=2) as writer:
        for number in range(3):
            writer.add(record(number))
    assert place.tries == [[0, 1]] * 4 + [[2]]
    assert (place.kept, writer.errors, writer.written, writer.dropped) == ([0, 1, 2], 3, 3, 0)


def test_a_batch_that_never_can_be_written_does_not_stop_the_others() -> None:
    place = Place()
    place.fail, place.fails_left = Unwritable("not a number"), 1
    with writer_to(place, batch=2) as writer:
        for number in range(4):
            writer.add(record(number))
    assert (place.kept, writer.dropped, writer.written) == ([2, 3], 2, 2)


def test_over_the_bound_the_oldest_go_and_are_counted() -> None:
    place = Place()
    with writer_to(place, limit=5) as writer:
        for number in range(12):
            writer.add(record(number))
        assert (writer.backlog, writer.dropped) == (5, 7)
    assert place.kept == [7, 8, 9, 10, 11]


def test_a_place_that_is_lost_for_good_does_not_hold_up_the_end(monkeypatch: object) -> None:
    place = Place()
    place.fail, place.fails_left = OSError("broken pipe"), 10**9
    monkeypatch.setattr("kilocard.stores.batches.LAST_TRIES", 0.05)  # type: ignore[attr-defined]
    with writer_to(place, batch=2) as writer:
        for number in range(4):
            writer.add(record(number))
    assert not place.kept
    assert writer.backlog == 4, "what is lost is known"
