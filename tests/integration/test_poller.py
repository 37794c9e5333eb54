"""The poller against real sockets that behave well, slowly, oddly or not at all."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop

from kilocard.core.load import LoadSample
from kilocard.engines.base import MetricsPage
from kilocard.metrics.dialect import Dialect
from kilocard.scrape.poller import Poller

DIALECT = Dialect(running=("eng:running",))
PAGES = (MetricsPage("/metrics", DIALECT),)
TEXT = "# HELP x y\n" + "# padding\n" * 5000 + "eng:running 7\n"  # 50 KB

Answer = Callable[[str, asyncio.StreamWriter], Awaitable[None]]


def page(body: str | bytes, status: str = "200 OK", extra: str = "") -> bytes:
    data = body.encode() if isinstance(body, str) else body
    return f"HTTP/1.1 {status}\r\n{extra}Content-Length: {len(data)}\r\n\r\n".encode() + data


class Engine:
    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked: list[tuple[float, str]] = []
        self.connections = 0
        self.at_once = 0
        self.most_at_once = 0
        self.writers: set[asyncio.StreamWriter] = set()
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.add(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                assert "accept-encoding" not in head.lower()
                path = head.split()[1]
                self.asked.append((asyncio.get_running_loop().time(), path))
                self.at_once += 1
                self.most_at_once = max(self.most_at_once, self.at_once)
                try:
                    await self.answer(path, writer)
                    await writer.drain()
                finally:
                    self.at_once -= 1
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.writers.discard(writer)
            writer.close()


def always(data: bytes) -> Answer:
    async def answer(path: str, writer: asyncio.StreamWriter) -> None:
        writer.write(data)

    return answer


@asynccontextmanager
async def engine(answer: Answer | bytes) -> AsyncIterator[Engine]:
    here = Engine(always(answer) if isinstance(answer, bytes) else answer)
    server = await asyncio.start_server(here.serve, "127.0.0.1", 0)
    here.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield here
    finally:
        server.close()
        for writer in list(here.writers):
            writer.close()


class Heard:
    """What was reported; `until` waits for it."""

    def __init__(self) -> None:
        self.reports: list[tuple[str, LoadSample | None]] = []
        self._more = asyncio.Event()

    def __call__(self, replica: str, sample: LoadSample | None) -> None:
        self.reports.append((replica, sample))
        self._more.set()

    def of(self, replica: str) -> list[LoadSample | None]:
        return [sample for name, sample in self.reports if name == replica]

    async def until(self, enough: Callable[[Heard], bool]) -> None:
        async with asyncio.timeout(25):
            while not enough(self):
                self._more.clear()
                await self._more.wait()


@asynccontextmanager
async def polling(heard: Heard, **settings: Any) -> AsyncIterator[Poller]:
    defaults = {"interval": 0.1, "timeout": 1.0, "rng": random.Random(1)}
    poller = Poller(heard, **{**defaults, **settings})
    poller.start()
    try:
        yield poller
    finally:
        await poller.close()
        count = len(heard.reports)
        await asyncio.sleep(0.05)
        assert len(heard.reports) == count, "reports after close"


LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def run(test: Awaitable[Any], loop: str = "uvloop") -> None:
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(asyncio.wait_for(test, 30))  # type: ignore[arg-type]  # a coroutine, in each test


@pytest.mark.parametrize("loop", LOOPS)
def test_one_connection_one_page_each_interval(loop: str) -> None:
    async def test() -> None:
        heard = Heard()
        async with engine(page(TEXT)) as one, polling(heard) as poller:
            poller.add("a", one.url, PAGES)
            poller.add("a", one.url, PAGES)
            await heard.until(lambda h: len(h.reports) >= 5)
            assert all(sample is not None and sample.running == 7 for sample in heard.of("a"))
            assert one.connections == 1
            # in four intervals, of which a busy machine may have cut the first short
            assert one.asked[4][0] - one.asked[0][0] > 0.29
            status = poller.status("a")
            assert status is not None
            assert (status.page, status.error, status.failures) == ("/metrics", None, 0)

    run(test(), loop)


def test_all_replicas_have_their_turn_and_not_at_once() -> None:
    async def test() -> None:
        heard = Heard()
        async with engine(page(TEXT)) as one, polling(heard, interval=0.5) as poller:
            for n in range(50):
                poller.add(f"r{n}", one.url, PAGES)
            await heard.until(lambda h: len(h.reports) >= 150)
            counts = Counter(name for name, _ in heard.reports)
            assert len(counts) == 50
            assert max(counts.values()) - min(counts.values()) <= 1

            def spread() -> bool:
                """The last 50: what others do on this machine can only bunch them."""
                fifths = Counter(int(when % 0.5 * 10) for when, _ in one.asked[-50:])
                return len(fifths) == 5 and max(fifths.values()) < 3 * min(fifths.values())

            await heard.until(lambda _: spread())

    run(test())


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(
    "data",
    [
        f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{len(TEXT):x}\r\n{TEXT}\r\n0\r\n\r\n".encode(),
        f"HTTP/1.0 200 OK\r\n\r\n{TEXT}".encode(),
        page(TEXT, extra="Connection: close\r\n"),
        page(TEXT * 40),  # 2 MB
        page(TEXT) + b"surplus",
    ],
    ids=["chunked", "until close", "close", "large", "surplus"],
)
def test_other_framings(data: bytes, loop: str) -> None:
    async def answer(path: str, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        if b"HTTP/1.0" in data[:10]:
            writer.close()

    async def test() -> None:
        heard = Heard()
        async with engine(answer) as one, polling(heard) as poller:
            poller.add("a", one.url, PAGES)
            await heard.until(lambda h: len(h.reports) >= 3)
            assert [s.running for s in heard.of("a") if s] == [7] * 3
            if data.endswith(b"surplus"):
                assert one.connections == 3  # what follows unasked must not be taken for the next page

    run(test(), loop)


def test_a_page_that_comes_byte_by_byte_is_whole() -> None:
    async def answer(path: str, writer: asyncio.StreamWriter) -> None:
        data = page("# HELP x y\neng:running 7\n")
        for n in range(len(data)):
            writer.write(data[n : n + 1])
            await writer.drain()
            await asyncio.sleep(0)

    async def test() -> None:
        heard = Heard()
        async with engine(answer) as one, polling(heard) as poller:
            poller.add("a", one.url, PAGES)
            await heard.until(lambda h: len(h.reports) >= 2)
            assert [s.running for s in heard.of("a") if s][:2] == [7, 7]

    run(test())


def test_a_slow_replica_is_given_rest_and_blocks_no_other() -> None:
    async def hang(path: str, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(5)

    async def test() -> None:
        heard = Heard()
        async with engine(hang) as slow, engine(page(TEXT)) as quick, polling(heard, timeout=0.5) as poller:
            poller.add("slow", slow.url, PAGES)
            poller.add("quick", quick.url, PAGES)
            await heard.until(lambda h: len(h.of("quick")) >= 20)
            assert 1 <= len(heard.of("slow")) <= 4
            assert set(heard.of("slow")) == {None}
            assert None not in heard.of("quick")
            assert len(slow.asked) <= 5
            status = poller.status("slow")
            assert status is not None
            assert status.error == "no whole page within 0.5 s"

    run(test())


def test_a_page_that_takes_long_is_asked_for_less_often() -> None:
    async def slowly(path: str, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.15)
        writer.write(page(TEXT))

    async def test() -> None:
        heard = Heard()
        async with engine(slowly) as slow, polling(heard) as poller:
            poller.add("slow", slow.url, PAGES)
            await heard.until(lambda h: len(h.of("slow")) >= 3)
            assert None not in heard.of("slow")
            gaps = [b[0] - a[0] for a, b in zip(slow.asked, slow.asked[1:], strict=False)]
            assert min(gaps) >= 0.5
            assert slow.most_at_once == 1

    run(test())


def test_the_pages_are_tried_in_order_and_the_right_one_is_kept() -> None:
    async def answer(path: str, writer: asyncio.StreamWriter) -> None:
        writer.write(page(TEXT) if path == "/prometheus/metrics" else page('{"serve_mode": 1}'))

    async def test() -> None:
        heard = Heard()
        pages = (PAGES[0], MetricsPage("/prometheus/metrics", DIALECT))
        async with engine(answer) as one, polling(heard) as poller:
            poller.add("a", one.url + "/", pages)
            await heard.until(lambda h: len(h.reports) >= 3)
            assert [path for _, path in one.asked][:4] == ["/metrics"] + ["/prometheus/metrics"] * 3
            assert one.connections == 1
            status = poller.status("a")
            assert status is not None
            assert status.page == "/prometheus/metrics"

    run(test())


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (page('{"serve_mode":"direct"}'), 'JSON, not Prometheus text: \'{"serve_mode"'),
        (page("<html>", "404 Not Found"), "/metrics answered 404"),
        (page("x" * 200_000), "too large: 200000 bytes, and 100000 are allowed"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 200_000, "too large: more than 100000 bytes"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n30d40\r\n" + b"x" * 200_000, "too large: more than"),
        (b"SSH-2.0-OpenSSH\r\n", "not HTTP"),
    ],
)
def test_what_can_not_be_read_is_said_once(data: bytes, says: str, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        heard = Heard()
        async with engine(data) as one, polling(heard, interval=0.02, max_bytes=100_000) as poller:
            poller.add("a", one.url, PAGES)
            await heard.until(lambda h: len(h.reports) >= 4)
            assert set(heard.of("a")) == {None}
            status = poller.status("a")
            assert status is not None
            assert status.error is not None
            assert says in status.error
            assert poller.failed >= 4

    with caplog.at_level(logging.INFO, "kilocard.scrape"):
        run(test())
    assert len(caplog.records) == 1
    assert says in caplog.text


def test_a_replica_that_is_away_is_found_again(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        heard = Heard()
        async with engine(page(TEXT)) as one:
            url = one.url
        async with polling(heard, interval=0.05) as poller:
            poller.add("a", url, PAGES)
            await heard.until(lambda h: len(h.reports) >= 2)
            assert set(heard.of("a")) == {None}
            back = Engine(always(page(TEXT)))
            server = await asyncio.start_server(back.serve, "127.0.0.1", int(url.rpartition(":")[2]))
            await heard.until(lambda h: h.of("a")[-1] is not None)
            await poller.close()
            server.close()

    with caplog.at_level(logging.INFO, "kilocard.scrape"):
        run(test())
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "can't connect" in caplog.records[0].getMessage()


@pytest.mark.parametrize("loop", LOOPS)
def test_a_connection_that_died_idle_costs_no_failure(loop: str) -> None:
    """The engine closes just as the next request comes: no byte was heard, so it is asked again, once."""
    requests = 0

    async def answer(path: str, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        requests += 1
        if requests % 2 == 0:
            writer.close()
        else:
            writer.write(page(TEXT))

    async def test() -> None:
        heard = Heard()
        async with engine(answer) as one, polling(heard) as poller:
            poller.add("a", one.url, PAGES)
            await heard.until(lambda h: len(h.reports) >= 4)
            assert None not in heard.of("a")
            assert one.connections >= 3

    run(test(), loop)


def test_a_removed_replica_is_heard_of_no_more() -> None:
    async def hang(path: str, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await asyncio.sleep(5)

    asked = asyncio.Event()

    async def test() -> None:
        heard = Heard()
        async with engine(hang) as one, polling(heard, timeout=0.2) as poller:
            poller.add("a", one.url, PAGES)
            await asked.wait()
            poller.remove("a")
            poller.remove("a")
            await asyncio.sleep(0.4)
            assert heard.reports == []
            assert poller.statuses() == {}

    run(test())


def test_a_moved_replica_is_asked_at_its_new_place() -> None:
    async def test() -> None:
        heard = Heard()
        async with (
            engine(page("# HELP x y\neng:running 1\n")) as old,
            engine(page("# HELP x y\neng:running 2\n")) as new,
            polling(heard) as poller,
        ):
            poller.add("a", old.url, PAGES)
            await heard.until(lambda h: len(h.reports) >= 2)
            poller.add("a", new.url, PAGES)
            await heard.until(lambda h: (s := h.of("a")[-1]) is not None and s.running == 2)
            before = len(old.asked)
            await heard.until(lambda h: len([s for s in h.of("a") if s and s.running == 2]) >= 3)
            assert len(old.asked) == before

    run(test())


def test_long_intervals_keep_no_connection() -> None:
    """An engine would close it after 5 s; then it is better not to have one."""

    async def test() -> None:
        heard = Heard()
        async with engine(page(TEXT)) as one, polling(heard, interval=4.0, rng=random.Random(3)) as poller:
            for n in range(20):
                poller.add(f"r{n}", one.url, PAGES)
            await heard.until(lambda h: len(h.reports) >= 3)
            async with asyncio.timeout(20):
                while len(one.writers) > 1:
                    await asyncio.sleep(0.01)

    run(test())
