"""One request of one client: send it, read the answer, say whether that can be right."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import ssl
import time
from dataclasses import dataclass
from typing import Any

from benchmarks.soak.cast import Tenant
from benchmarks.soak.results import Accepted, End, Result, Results
from benchmarks.soak.wire import PROMPT_MARK, Answer, Connection, Cut, Pace, post

#: codes of 429 that are a tenant's own limit
LIMITS = {"requests_per_minute", "tokens_per_minute", "concurrency", "tokens_per_day"}
#: a receipt is never longer, in bytes
RECEIPT = 2048
#: what a request of that version is called
OLD_HTTP = "HTTP/1.0"


@dataclass(frozen=True)
class Door:
    """Where the gateway is. `deadline`: seconds within which every request must have an end."""

    port: int
    deadline: float
    tls: ssl.SSLContext | None = None


class Asker:
    """A tenant's client with one connection at most."""

    def __init__(self, number: int, tenant: Tenant, seed: int, door: Door, results: Results) -> None:
        self.number = number
        self.tenant = tenant
        self.rng = random.Random(seed * 10_007 + number)
        self.door = door
        self.results = results
        #: another key than the tenant's own
        self.key: str | None = None
        self._connection: Connection | None = None
        self._count = 0

    def post(
        self, body: dict[str, Any], path: str = "/v1/chat/completions", *, version: str = "1.1", chunks: int = 0
    ) -> tuple[str, bytes]:
        """(its id, one request): with the tenant's key in one of the two headers, now and then asking for a receipt."""
        self._count += 1
        id = f"{self.tenant.name}-{self.number}-{self._count}"
        headers = [f"x-request-id: {id}"]
        if self.rng.random() < 0.05:
            headers.append("x-kilocard-receipt: 1")
        key = self.key or self.tenant.key
        return id, post(
            body, path, key=key, version=version, headers=tuple(headers), chunks=chunks,
            api_key=self.rng.random() < 0.2,
        )  # fmt: skip

    def text(self, length: int) -> str:
        """A prompt that nobody else has: equal bodies would share their fate in quarantine."""
        return f"{PROMPT_MARK}{self.number:06d}-{self._count:06d} " + "x" * length

    async def ask(
        self,
        what: str,
        request: tuple[str, bytes],
        body: dict[str, Any],
        *,
        patience: float | None = None,
        pace: Pace | None = None,
        may_be_cut: bool = False,
        written: bytes | None = None,
        receive_buffer: int | None = None,
        refusals: frozenset[str] = frozenset(),
    ) -> Result:
        """Send a request, read one answer, judge it. `patience`: leave after so long. `written`: send this instead, for
        requests that are sent together. `refusals`: codes that are as they should be."""
        id, data = request
        result = Result(
            what, time.monotonic(), 0.0, End.OK, Accepted.YES, id, self.tenant.name, body["model"],
            stream=bool(body.get("stream")),
        )  # fmt: skip
        reusable = False
        answer: Answer | None = None
        try:
            async with asyncio.timeout(self.door.deadline if patience is None else patience):
                connection = await self.open(receive_buffer=receive_buffer)
                connection.answer = None
                await connection.send(data if written is None else written)
                answer = await connection.response(pace)
            self._judge(result, answer, body)
            if result.end is End.ERROR and result.code in refusals:
                result.end = End.REFUSED
            self._judge_headers(result, answer, b"x-kilocard-receipt" in data)
            # Behind an error event the gateway closes, and can't say so: the head was out long before.
            reusable = not answer.closes and not (answer.stream and result.end is End.ERROR)
        except TimeoutError:
            result.end = End.STUCK if patience is None else End.LEFT
        except Cut as cut:
            result.end, result.detail = End.CUT, str(cut)
            if may_be_cut:
                result.end = End.LEFT
        except ValueError as error:
            result.end, result.detail = End.WRONG, str(error)
        answer = self._connection.answer if self._connection is not None else None
        if answer is None and result.end in (End.LEFT, End.CUT):
            result.accepted = Accepted.UNSURE
        if answer is not None and result.stream and answer.stream:
            result.content = answer.body.count(b'"content":"') + answer.body.count(b'"text":"')
        self.finish(result)
        if not reusable:
            self.close()
        return result

    def _judge_headers(self, result: Result, answer: Answer, receipt: bool) -> None:
        if answer.headers.get("x-request-id") != result.id:
            result.end, result.detail = End.WRONG, f"answer of {answer.headers.get('x-request-id')}, not {result.id}"
        if receipt and answer.status == 200:
            told = answer.headers.get("x-kilocard-receipt", "")
            if len(told) > RECEIPT or "127.0.0.1" in told or json.loads(told or "{}").get("model") != result.model:
                result.end, result.detail = End.WRONG, f"receipt {told!r}"

    def _judge(self, result: Result, answer: Answer, body: dict[str, Any]) -> None:
        result.status = answer.status
        if answer.status != 200:
            self._judge_error(result, answer)
            return
        if not result.stream:
            usage = json.loads(answer.body).get("usage")
            if usage is not None:
                result.prompt_tokens = usage["prompt_tokens"]
                result.output_tokens = usage.get("completion_tokens") or 0
            return
        events = answer.events()
        if result.what == OLD_HTTP and not (events and (events[-1] == "[DONE]" or '"error"' in events[-1])):
            raise Cut(began=True)  # the end of a connection is all that tells the end there
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

    def _judge_error(self, result: Result, answer: Answer) -> None:
        result.end = End.ERROR
        code = answer.error_code()
        result.code = code or ""
        if answer.status == 401:
            result.accepted = Accepted.NO
        if code is None:
            result.end, result.detail = End.WRONG, f"no error in {bytes(answer.body[:200])!r}"
        elif answer.status == 503 and "retry-after" not in answer.headers and code != "503":
            result.end, result.detail = End.WRONG, "503 without Retry-After"
        elif answer.status == 429 and code in LIMITS:
            result.end = End.REFUSED
            if code not in self.tenant.limits:
                result.end, result.detail = End.WRONG, "it has no such limit"
            elif "retry-after" not in answer.headers:
                result.end, result.detail = End.WRONG, "429 without Retry-After"

    def _judge_events(self, result: Result, events: list[dict[str, Any]], done: bool, body: dict[str, Any]) -> None:
        """One answer from one replica, whole if it says so: nobody else's tokens among it, none twice."""
        if any("error" in event for event in events):
            result.end, result.detail = End.WRONG, "an error event in the middle"
        elif len({event.get("id") for event in events}) > 1:
            result.end, result.detail = End.WRONG, "two answers in one stream"
        elif result.end is End.ERROR and done:
            result.end, result.detail = End.WRONG, "[DONE] in a stream that broke"
        usage = [event["usage"] for event in events if event.get("usage")]
        asked = bool(body.get("stream_options"))
        tokens = sum(1 for event in events for choice in event["choices"] if "content" in choice.get("delta", {}))
        tokens -= any("role" in choice.get("delta", {}) for event in events[:1] for choice in event["choices"])
        if result.end is End.OK:
            result.output_tokens = tokens
            if tokens != body["max_tokens"]:
                result.end, result.detail = End.WRONG, f"{tokens} tokens of {body['max_tokens']}"
            elif len(usage) != asked:
                result.end, result.detail = End.WRONG, f"{len(usage)} usage chunks"
            elif usage:
                result.prompt_tokens, result.output_tokens = usage[0]["prompt_tokens"], usage[0]["completion_tokens"]

    # -- the connection

    async def open(self, *, receive_buffer: int | None = None) -> Connection:
        if self._connection is not None and self._connection.closed:
            self.close()  # while nobody asked, as when its worker was killed
        if self._connection is None:
            self._connection = await Connection.open(self.door.port, tls=self.door.tls, receive_buffer=receive_buffer)
        return self._connection

    @property
    def connected(self) -> bool:
        return self._connection is not None

    def close(self, *, reset: bool = False) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.leave(reset=reset)

    def finish(self, result: Result) -> None:
        result.ended = time.monotonic()
        self.results.add(result)
