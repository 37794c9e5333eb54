"""Clients: patient ones, hasty ones, slow ones, odd ones. Each is a loop of scenarios drawn from its own dice."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks.soak.asking import OLD_HTTP, Asker
from benchmarks.soak.files import IDLE, TOTAL
from benchmarks.soak.malformed import MALFORMED, TLS_HELLO
from benchmarks.soak.results import Accepted, End, Result
from benchmarks.soak.wire import Cut

Scenario = Callable[["Client"], Awaitable[None]]


class Client(Asker):
    async def run(self, stopping: asyncio.Event) -> None:
        scenarios, weights = zip(*_SCENARIOS, strict=True)
        while not stopping.is_set():
            before = self.results.by_tenant[self.tenant.name, End.REFUSED]
            await self.rng.choices(scenarios, weights)[0](self)
            if self.rng.random() < 0.3:
                self.close()
            await asyncio.sleep(self.rng.expovariate(4.0))
            if self.results.by_tenant[self.tenant.name, End.REFUSED] > before:
                await asyncio.sleep(self.rng.random())
        self.close()

    async def once(self) -> None:
        """One request of a crowd; a third of them lose patience, most of these while they are held."""
        await asyncio.sleep(self.rng.random() * 0.3)
        body = self.chat(stream=self.rng.random() < 0.7, tokens=self.rng.choice([60, 200]))
        patience = self.rng.random() * 3.0 if self.rng.random() < 0.3 else None
        await self.ask("in a crowd", self.post(body), body, patience=patience)
        self.close(reset=self.rng.random() < 0.5)

    async def short(self) -> None:
        """What there are many of, where requests come at a rate."""
        stream = self.rng.random() < 0.4
        body = self.chat(stream=stream, tokens=self.rng.choice([1, 2, 4, 8]), length=self.rng.choice([4, 200]))
        if stream and self.rng.random() < 0.3:
            body["stream_options"] = {"include_usage": True}
        patience = self.rng.random() * 0.05 if self.rng.random() < 0.02 else None
        await self.ask("short", self.post(body), body, patience=patience)

    # -- scenarios

    async def plain(self) -> None:
        body = self.chat(stream=False)
        await self.ask("plain", self.post(body), body)

    async def stream(self) -> None:
        body = self.chat(stream=True, tokens=self.rng.choice([1, 2, 8, 40, 40, 120, 400]))
        if self.rng.random() < 0.3:
            body["stream_options"] = {"include_usage": True}
        await self.ask("stream", self.post(body), body)

    async def uploads_chunked(self) -> None:
        body = self.chat(stream=self.rng.random() < 0.5)
        await self.ask("chunked upload", self.post(body, chunks=self.rng.randrange(1, 6)), body)

    async def old_http(self) -> None:
        body = self.chat(stream=self.rng.random() < 0.5)
        self.close()
        await self.ask(OLD_HTTP, self.post(body, version="1.0"), body)
        self.close()

    async def small_routes(self) -> None:
        model = self.tenant.model
        routes: list[tuple[str, dict[str, Any]]] = [
            ("/v1/embeddings", {"model": model, "input": [self.text(0), "b"]}),
            ("/tokenize", {"model": model, "prompt": self.text(self.rng.randrange(1, 3000))}),
            ("/v1/completions", {"model": model, "prompt": self.text(1), "max_tokens": 4}),
        ]
        path, body = self.rng.choice(routes)
        await self.ask(path, self.post(body, path), body)

    async def large_answer(self) -> None:
        """More than the gateway gathers before it passes an answer on."""
        body = {"model": self.tenant.model, "input": [self.text(0)] * 18, "dimensions": 4096}
        await self.ask("large answer", self.post(body, "/v1/embeddings"), body)

    async def leaves(self) -> None:
        """Anywhere between the request's first byte and the answer's last."""
        body = self.chat(stream=self.rng.random() < 0.7, tokens=self.rng.choice([40, 400, 2000]))
        request = self.post(body)
        if self.rng.random() < 0.15:
            await self._leave_early(request[1][: self.rng.randrange(1, len(request[1]))])
            return
        patience = self.rng.choice([0.0, 0.01, 0.1, 0.5, 2.0]) * self.rng.random()
        await self.ask("leaves", request, body, patience=patience)
        self.close(reset=self.rng.random() < 0.5)

    async def _leave_early(self, part: bytes) -> None:
        result = self._result("leaves early", End.LEFT, Accepted.NO)
        try:
            await (await self.open()).send(part)
        except Cut as cut:
            result.end, result.detail = End.CUT, str(cut)
        await asyncio.sleep(self.rng.random() * 0.2)
        self.close(reset=self.rng.random() < 0.5)
        self.finish(result)

    async def reads_slowly(self) -> None:
        """Long enough for every buffer on the way to fill; some stop for longer than the gateway waits."""
        self.close()
        body = self.chat(stream=True, tokens=self.rng.choice([1000, 4000]))
        stop_at = self.rng.randrange(20, 1500) if self.rng.random() < 0.4 else None
        every = self.rng.randrange(20, 60)
        seen = 0

        began = time.monotonic()

        async def pace() -> None:
            nonlocal seen
            seen += 1
            if time.monotonic() - began > TOTAL:  # the gateway has ended it: what is left is in buffers on the way
                return
            if seen == stop_at:
                await asyncio.sleep(IDLE * 1.5)
            elif seen % every == 0:
                await asyncio.sleep(0.05)

        await self.ask(
            "reads slowly", self.post(body), body, pace=pace, may_be_cut=stop_at is not None, receive_buffer=32 * 1024
        )
        self.close()

    async def pipelines(self) -> None:
        """Several requests in one write; the answers come in their order."""
        self.close()
        bodies = [self.chat(stream=self.rng.random() < 0.3, tokens=3) for _ in range(self.rng.randrange(2, 6))]
        leave_after = self.rng.randrange(len(bodies)) if self.rng.random() < 0.3 else None
        requests = [self.post(body) for body in bodies]
        first = b"".join(data for _, data in requests)
        for place, ((id, data), body) in enumerate(zip(requests, bodies, strict=True)):
            if place == leave_after or (place and not self.connected):
                for left, _ in requests[place:]:
                    result = self._result("pipelines", End.LEFT, Accepted.UNSURE)
                    result.id = left
                    self.finish(result)
                self.close(reset=self.rng.random() < 0.5)
                return
            await self.ask("pipelines", (id, data), body, written=b"" if place else first)

    async def malformed(self) -> None:
        self.close()
        case = self.rng.choice(MALFORMED)
        if case is TLS_HELLO and self.door.tls is not None:
            return
        result = self._result(f"malformed: {case.name}", End.OK, Accepted.YES if case.counted else Accepted.NO)
        result.tenant = ""
        try:
            async with asyncio.timeout(self.door.deadline):
                connection = await self.open()
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
        self.finish(result)
        self.close()

    # -- parts

    def _result(self, what: str, end: End, accepted: Accepted) -> Result:
        return Result(what, time.monotonic(), 0.0, end, accepted, tenant=self.tenant.name, model=self.tenant.model)

    def chat(self, *, stream: bool, tokens: int | None = None, length: int | None = None) -> dict[str, Any]:
        rng = self.rng
        return {
            "model": self.tenant.model,
            "messages": [{"role": "user", "content": self.text(length or rng.choice([4, 200, 200, 2000, 12_000]))}],
            "max_tokens": tokens or rng.choice([1, 5, 30, 30, 150]),
            "stream": stream,
        }


_SCENARIOS: list[tuple[Scenario, int]] = [
    (Client.plain, 26),
    (Client.stream, 34),
    (Client.leaves, 14),
    (Client.pipelines, 6),
    (Client.malformed, 8),
    (Client.reads_slowly, 3),
    (Client.small_routes, 4),
    (Client.large_answer, 1),
    (Client.uploads_chunked, 3),
    (Client.old_http, 2),
]
