"""What the client measured beside what the timed server did, on the same clock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from benchmarks.bench_client.timed_server import Sent
from kilocard.bench.record import RequestRecord

PERCENTILES = (0.5, 0.9, 0.95, 0.99)


@dataclass(slots=True)
class Series:
    """The same quantity of the same requests, seconds: as reported and as it was."""

    reported: list[float] = field(default_factory=list)
    true: list[float] = field(default_factory=list)

    def worst(self) -> float:
        """The largest difference between a reported percentile and the true one; 0 where nothing was measured."""
        if not self.true:
            return 0.0
        return max(abs(percentile(self.reported, share) - percentile(self.true, share)) for share in PERCENTILES)


@dataclass(slots=True)
class Comparison:
    ttft: Series = field(default_factory=Series)
    itl: Series = field(default_factory=Series)
    e2e: Series = field(default_factory=Series)
    #: of each arrival: stamp minus the time at which the server had sent it
    stamps: list[float] = field(default_factory=list)

    def __iter__(self) -> Iterator[tuple[str, Series]]:
        return iter((("ttft", self.ttft), ("itl", self.itl), ("e2e", self.e2e)))


def compare(records: Sequence[RequestRecord], log: dict[str, Sent], started_ns: int) -> Comparison:
    """Complete records only; their `session` is the id in the server's log.

    A token left within a stretch that the server knows, some microseconds unless others had the processor: the client
    is off by what it is outside of that.
    """
    made = Comparison()
    for record in records:
        if record.error is not None:
            continue
        assert record.session is not None and record.first_s is not None
        assert record.ttft_s is not None and record.e2e_s is not None
        at_server = log[record.session]
        seen = [record.first_s]
        for gap in record.gaps_s:
            seen.append(seen[-1] + gap)
        count = len(at_server.sent_ns)
        assert len(seen) == count, f"{record.session}: {len(seen)} arrivals of {count} tokens"
        stretches = zip(at_server.began_ns, at_server.sent_ns, strict=True)
        sent = [
            min(max(at, (begin - started_ns) * 1e-9), (end - started_ns) * 1e-9)
            for at, (begin, end) in zip(seen, stretches, strict=True)
        ]
        made.stamps += [a - b for a, b in zip(seen, sent, strict=True)]
        made.ttft.reported.append(record.ttft_s)
        made.ttft.true.append(sent[0] - record.intended_s)
        made.e2e.reported.append(record.e2e_s)
        made.e2e.true.append(sent[-1] - record.intended_s)
        made.itl.reported += record.gaps_s
        made.itl.true += [b - a for a, b in pairwise(sent)]
    return made


def percentile(values: Sequence[float], share: float) -> float:
    """Nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
