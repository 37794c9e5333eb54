"""kilocard's load client under the load of load.py."""

from __future__ import annotations

import itertools
import time
from dataclasses import asdict
from typing import Any

from benchmarks.bench_client.load import Load, Seen, main
from kilocard.bench.ask import Ask, Target
from kilocard.bench.client import Client
from kilocard.bench.drive import drive_closed
from kilocard.bench.record import RequestRecord


def measure(load: Load) -> tuple[list[Seen], dict[str, Any]]:
    numbers = itertools.count()
    started_ns = time.monotonic_ns()

    def make() -> Ask:
        number = next(numbers)
        return Ask(load.body(number), 100, load.chunks, session=str(number))

    with Client(Target(load.url), started_ns=started_ns) as client:
        driven = drive_closed(client, make, load.streams, requests=load.requests)
    failed = [record.error for record in driven.records if record.error is not None]
    assert not failed, failed[:3]
    seen = [
        (record.session or "", int(record.intended_s * 1e9) + started_ns, arrivals(record, started_ns))
        for record in driven.records
    ]
    return seen, {"health": asdict(driven.health)}


def arrivals(record: RequestRecord, started_ns: int) -> list[int]:
    assert record.first_s is not None
    times = itertools.accumulate(record.gaps_s, initial=record.first_s)
    return [int(at * 1e9) + started_ns for at in times]


if __name__ == "__main__":
    main(measure)
