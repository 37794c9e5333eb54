"""Are the reported times the true ones? Compared token by token with a server that notes when it sent each."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from benchmarks.bench_client.against_truth import compare, percentile
from benchmarks.bench_client.timed_server import TimedServer, timed_body
from measurement import measurement

from kilocard.bench import connection
from kilocard.bench.ask import Ask, Target
from kilocard.bench.client import Client
from kilocard.bench.drive import drive_closed, drive_open


@pytest.fixture(scope="module")
def server() -> Iterator[TimedServer]:
    with TimedServer() as running:
        yield running


def scripted(name: str, **script: Any) -> Callable[[], Ask]:
    """Asks whose `session` is their id in the server's log."""
    numbers = itertools.count()

    def make() -> Ask:
        number = next(numbers)
        id = f"{name}-{number}"
        first_s = 0.05 + 0.01 * (number % 10)
        return Ask(timed_body(id, first_s=first_s, seed=number, **script), 1, script["chunks"], session=id)

    return make


@pytest.mark.parametrize("beat", [False, True], ids=["spread", "all streams at once"])
@measurement
def test_percentiles_of_a_closed_loop_are_right_to_a_millisecond(server: TimedServer, beat: bool) -> None:
    started_ns = time.monotonic_ns()
    with Client(Target(server.url), started_ns=started_ns) as client:
        make = scripted(f"closed-{started_ns}", chunks=15, gap_s=0.02, spread=0.5, beat=beat)
        driven = drive_closed(client, make, 100, requests=200)
    assert [r.error for r in driven.records if r.error] == []
    assert all(r.output_tokens == 15 and len(r.gaps_s) == 14 for r in driven.records)
    seen = compare(driven.records, server.log(), started_ns)
    for name, series in seen:
        assert series.worst() < 0.001, name
    assert percentile([abs(error) for error in seen.stamps], 0.99) < 0.001


@measurement
def test_without_the_kernels_times_the_client_says_how_far_off_it_may_be(
    server: TimedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "SO_TIMESTAMPNS", 9999)  # no such option: setsockopt refuses
    started_ns = time.monotonic_ns()
    with Client(Target(server.url), started_ns=started_ns) as client:
        make = scripted(f"own-{started_ns}", chunks=15, gap_s=0.02, beat=True)
        driven = drive_closed(client, make, 50, requests=100)
    assert [r.error for r in driven.records if r.error] == []
    errors = [abs(error) for error in compare(driven.records, server.log(), started_ns).stamps]
    # It counts from one look at the sockets to the next; what it sleeps through shows in the heartbeats.
    assert percentile(errors, 0.99) - driven.health.lag_p99_s < 0.001


@measurement
def test_bn_06_a_stall_shows_in_everything_that_should_have_been_sent_meanwhile(server: TimedServer) -> None:
    """10 requests a second and a stall of 10 s, ten times as fast: 100 a second, 1 s. In a run of 3 s some 100 requests
    should have been sent while the server stood still; a tester that waits for answers would have sent one."""
    started_ns = time.monotonic_ns()
    names = [f"stall-{started_ns}-{n}" for n in range(300)]
    asks = [
        Ask(timed_body(name, chunks=2, first_s=0.01, gap_s=0.01), 1, 2, at_s=n * 0.01, session=name)
        for n, name in enumerate(names)
    ]
    with Client(Target(server.url), started_ns=started_ns) as client:
        server.stall(1.0, after_s=1.0)
        driven = drive_open(client, asks)
    assert [r.error for r in driven.records if r.error] == []
    ttfts = [r.ttft_s for r in driven.records if r.ttft_s is not None]
    assert len(ttfts) == 300
    assert 80 <= sum(ttft > 0.1 for ttft in ttfts) <= 115
    assert percentile(ttfts, 0.5) < 0.1
    assert 0.5 < percentile(ttfts, 0.9) < 0.9
    assert 0.9 < percentile(ttfts, 0.99) < 1.1
    assert compare(driven.records, server.log(), started_ns).ttft.worst() < 0.001


def test_an_answer_that_is_not_streamed(server: TimedServer) -> None:
    with Client(Target(server.url)) as client:
        record = client.ask(Ask(timed_body("whole", stream=False, chunks=5, first_s=0.05, gap_s=0.01), 1, 5))
    assert (record.error, record.output_tokens, record.last_share, len(record.gaps_s)) == (None, 5, 1.0, 0)
    assert record.ttft_s == record.e2e_s
    assert 0.1 <= (record.e2e_s or 0) < 3


def test_bn_03_text_that_is_held_back_shows(server: TimedServer) -> None:
    """The server sends empty deltas, and everything at the end: the first token is not the first event."""
    with Client(Target(server.url)) as client:
        record = client.ask(Ask(timed_body("held", chunks=10, first_s=0.0, gap_s=0.02, fault="held_back"), 1, 10))
    assert record.error is None
    assert (record.last_share, record.first_kind) == (1.0, "content")
    assert record.ttft_s is not None and record.ttft_s > 0.17
