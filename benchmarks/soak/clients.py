"""Clients: patient ones, hasty ones, slow ones, odd ones. Each is a loop of scenarios drawn from its own dice."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks.soak.malformed import MALFORMED
from benchmarks.soak.results import Accepted, End, Result, Results
from benchmarks.soak.wire import MODEL, Answer, Connection, Cut, Pace, post


class Client:
    """`deadline`: seconds within which every request must have an end. `idle`: the gateway's patience with a reader."""

    def __init__(self, number: int, seed: int, port: int, results: Results, *, deadline: float, idle: float) -> None:
        self.rng = random.Random(seed * 10_007 + number)
        self.port = port
        self.results = results
        self.deadline = deadline
        self.idle = idle
        self._connection: Connection | None = None
        self._scenarios: list[tuple[Callable[[], Awaitable[None]], int]] = [
            (self.plain, 26),
            (self.stream, 34),
            (self.leaves, 14),
            (self.pipelines, 6),
            (self.malformed, 8),
            (self.reads_slowly, 3),
            (self.small_routes, 4),
            (self.large_answer, 1),
            (self.uploads_chunked, 3),
            (self.old_http, 2),
        ]

    async def run(self, stopping: asyncio.Event) -> None:
        scenarios, weights = zip(*self._scenarios, strict=True)
        while not stopping.is_set():
            scenario = self.rng.choices(scenarios, weights)[0]
            await scenario()
            if self.rng.random() < 0.3:
                self._close()
            await asyncio.sleep(self.rng.expovariate(4.0))
        self._close()

    async def once(self) -> None:
        """One request of a crowd; a third of them lose patience, most of these while they are held."""
        await asyncio.sleep(self.rng.random() * 0.3)
        body = self._chat(stream=self.rng.random() < 0.7, tokens=60)
        patience = self.rng.random() * 3.0 if self.rng.random() < 0.3 else None
        await self._ask("in a crowd", post(body), body, patience=patience)
        self._close(reset=self.rng.random() < 0.5)

    # -- scenarios

    async def plain(self) -> None:
        await self._ask("plain", post(self._chat(stream=False), headers=self._mine()))

    async def stream(self) -> None:
        body = self._chat(stream=True, tokens=self.rng.choice([1, 2, 8, 40, 40, 120, 400]))
        if self.rng.random() < 0.3:
            body["stream_options"] = {"include_usage": True}
        await self._ask("stream", post(body, headers=self._mine()), body)

    async def uploads_chunked(self) -> None:
        body = self._chat(stream=self.rng.random() < 0.5)
        await self._ask("chunked upload", post(body, chunks=self.rng.randrange(1, 6)), body)

    async def old_http(self) -> None:
        body = self._chat(stream=self.rng.random() < 0.5)
        self._close()
        await self._ask("HTTP/1.0", post(body, version="1.0"), body)
        self._close()

    async def small_routes(self) -> None:
        routes: list[tuple[str, dict[str, Any]]] = [
            ("/v1/embeddings", {"model": MODEL, "input": ["a", "b"]}),
            ("/tokenize", {"model": MODEL, "prompt": "x" * self.rng.randrange(1, 3000)}),
            ("/v1/completions", {"model": MODEL, "prompt": "x", "max_tokens": 4}),
        ]
        path, body = self.rng.choice(routes)
        await self._ask(path, post(body, path))

    async def large_answer(self) -> None:
        """More than the gateway gathers before it passes an answer on."""
        body = {"model": MODEL, "input": ["a"] * 18, "dimensions": 4096}
        await self._ask("large answer", post(body, "/v1/embeddings"))

    async def leaves(self) -> None:
        """Anywhere between the request's first byte and the answer's last."""
        body = self._chat(stream=self.rng.random() < 0.7, tokens=self.rng.choice([40, 400, 2000]))
        data = post(body)
        if self.rng.random() < 0.15:
            await self._leave_early(data[: self.rng.randrange(1, len(data))])
            return
        patience = self.rng.choice([0.0, 0.01, 0.1, 0.5, 2.0]) * self.rng.random()
        await self._ask("leaves", data, body, patience=patience)
        self._close(reset=self.rng.random() < 0.5)

    async def _leave_early(self, part: bytes) -> None:
        started = time.monotonic()
        connection = await self._open()
        await connection.send(part)
        await asyncio.sleep(self.rng.random() * 0.2)
        self._close(reset=self.rng.random() < 0.5)
        self.results.add(Result("leaves early", started, time.monotonic(), End.LEFT, Accepted.NO))

    async def reads_slowly(self) -> None:
        """Long enough for every buffer on the way to fill; some stop for longer than the gateway waits."""
        self._close()
        body = self._chat(stream=True, tokens=self.rng.choice([1000, 4000]))
        stop_at = self.rng.randrange(20, 1500) if self.rng.random() < 0.4 else None
        every = self.rng.randrange(20, 60)
        seen = 0

        async def pace() -> None:
            nonlocal seen
            seen += 1
            if seen == stop_at:
                await asyncio.sleep(self.idle * 1.5)
            elif seen % every == 0:
                await asyncio.sleep(0.05)

        self._connection = await Connection.open(self.port, receive_buffer=4096)
        await self._ask("reads slowly", post(body), body, pace=pace, may_be_cut=stop_at is not None)
        self._close()

    async def pipelines(self) -> None:
        """Several requests in one write; the answers come in their order."""
        self._close()
        bodies = [self._chat(stream=self.rng.random() < 0.3, tokens=3) for _ in range(self.rng.randrange(2, 6))]
        leave_after = self.rng.randrange(len(bodies)) if self.rng.random() < 0.3 else None
        connection = await self._open()
        await connection.send(b"".join(post(body, headers=(f"x-request-id: p{i}",)) for i, body in enumerate(bodies)))
        for place, body in enumerate(bodies):
            if place == leave_after or self._connection is None:
                for _ in bodies[place:]:
                    now = time.monotonic()
                    self.results.add(Result("pipelines", now, now, End.LEFT, Accepted.UNSURE))
                self._close(reset=self.rng.random() < 0.5)
                return
            await self._ask("pipelines", b"", body, expect_id=f"p{place}")

    async def malformed(self) -> None:
        self._close()
        case = self.rng.choice(MALFORMED)
        started = time.monotonic()
        connection = await self._open()
        accepted = Accepted.YES if case.counted else Accepted.NO
        result = Result(f"malformed: {case.name}", started, 0.0, End.OK, accepted)
        try:
            async with asyncio.timeout(self.deadline):
                await connection.send(case.data)
                answer = await connection.response()
                result.status, result.code = answer.status, answer.error_code() or ""
                if answer.status != case.status:
                    result.end, result.detail = End.WRONG, f"expected {case.status}"
                elif not result.code:
                    result.end, result.detail = End.WRONG, f"no error in {bytes(answer.body[:200])!r}"
                elif case.closes:
                    await connection.wait_closed_by_gateway()
        except TimeoutError:
            result.end = End.STUCK
        except Cut as cut:
            result.end, result.detail = End.CUT, str(cut)
        self._finish(result)
        self._close()

    # -- one request

    async def _ask(
        self,
        what: str,
        data: bytes,
        body: dict[str, Any] | None = None,
        *,
        patience: float | None = None,
        pace: Pace | None = None,
        may_be_cut: bool = False,
        expect_id: str | None = None,
    ) -> None:
        """Send `data` (empty: it is sent already), read one answer, judge it. `patience`: leave after so long."""
        result = Result(what, time.monotonic(), 0.0, End.OK, Accepted.YES, stream=bool(body and body.get("stream")))
        connection = await self._open()
        reusable = False
        try:
            async with asyncio.timeout(self.deadline if patience is None else patience):
                await connection.send(data)
                answer = await connection.response(pace)
            self._judge(result, answer, body)
            if expect_id is not None and answer.headers.get("x-request-id") != expect_id:
                result.end, result.detail = (
                    End.WRONG,
                    f"answer of {answer.headers.get('x-request-id')}, not {expect_id}",
                )
            # Behind an error event the gateway closes, and can't say so: the head was out long before.
            reusable = not answer.closes and not (answer.stream and result.end is End.ERROR)
        except TimeoutError:
            result.end = End.STUCK if patience is None else End.LEFT
            if patience is not None and connection.answer is None:
                result.accepted = Accepted.UNSURE
        except Cut as cut:
            result.end, result.detail = End.CUT, str(cut)
            if may_be_cut:
                result.end = End.LEFT
        except ValueError as error:
            result.end, result.detail = End.WRONG, str(error)
        if connection.answer is not None and result.stream and connection.answer.stream:
            result.content = connection.answer.body.count(b'"content":"') + connection.answer.body.count(b'"text":"')
        self._finish(result)
        if not reusable:
            self._close()

    def _judge(self, result: Result, answer: Answer, body: dict[str, Any] | None) -> None:
        result.status = answer.status
        if answer.status != 200:
            result.end = End.ERROR
            code = answer.error_code()
            result.code = code or ""
            if code is None:
                result.end, result.detail = End.WRONG, f"no error in {bytes(answer.body[:200])!r}"
            if answer.status == 503 and "retry-after" not in answer.headers and code != "503":
                result.end, result.detail = End.WRONG, "503 without Retry-After"
            return
        if not result.stream:
            json.loads(answer.body)
            return
        assert body is not None
        events = answer.events()
        if not events:
            result.end, result.detail = End.WRONG, "an empty stream"
            return
        if events[-1] != "[DONE]":
            last = json.loads(events[-1])
            if "error" not in last:
                result.end, result.detail = End.WRONG, f"the stream ends with {events[-1][:100]}"
                return
            result.end, result.code = End.ERROR, str(last["error"]["code"])
            events.pop()
        self._judge_events(
            result, [json.loads(event) for event in events if event != "[DONE]"], "[DONE]" in events, body
        )

    def _judge_events(self, result: Result, events: list[dict[str, Any]], done: bool, body: dict[str, Any]) -> None:
        """One answer from one replica, whole if it says so: nobody else's tokens among it, none twice."""
        if any("error" in event for event in events):
            result.end, result.detail = End.WRONG, "an error event in the middle"
        elif len({event.get("id") for event in events}) > 1:
            result.end, result.detail = End.WRONG, "two answers in one stream"
        elif result.end is End.ERROR and done:
            result.end, result.detail = End.WRONG, "[DONE] in a stream that broke"
        usage = [event for event in events if event.get("usage")]
        asked = bool(body.get("stream_options"))
        tokens = sum(1 for event in events for choice in event["choices"] if "content" in choice.get("delta", {}))
        tokens -= any("role" in choice.get("delta", {}) for event in events[:1] for choice in event["choices"])
        if result.end is End.OK:
            if tokens != body["max_tokens"]:
                result.end, result.detail = End.WRONG, f"{tokens} tokens of {body['max_tokens']}"
            elif len(usage) != asked:
                result.end, result.detail = End.WRONG, f"{len(usage)} usage chunks"

    # -- parts

    def _chat(self, *, stream: bool, tokens: int | None = None) -> dict[str, Any]:
        rng = self.rng
        text = "x" * rng.choice([4, 200, 200, 2000, 12_000])
        return {
            "model": MODEL,
            "messages": [{"role": "user", "content": text}],
            "max_tokens": tokens or rng.choice([1, 5, 30, 30, 150]),
            "stream": stream,
        }

    def _mine(self) -> tuple[str, ...]:
        return (f"x-request-id: mine-{self.rng.randrange(10**9)}",) if self.rng.random() < 0.5 else ()

    async def _open(self) -> Connection:
        if self._connection is None:
            self._connection = await Connection.open(self.port)
        return self._connection

    def _close(self, *, reset: bool = False) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(ConnectionError):
                connection.leave(reset=reset)

    def _finish(self, result: Result) -> None:
        result.ended = time.monotonic()
        self.results.add(result)
