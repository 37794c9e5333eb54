"""One client connection of the server: reads requests, runs one handler at a time, keeps the order."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, cast

from kilocard.core.errors import ClientError, KilocardError, RequestTimeout
from kilocard.net.reply import JSON, Gone, Reply
from kilocard.wire.failure import error_body
from kilocard.wire.http1 import CONTINUE, Request, RequestReader, response_head

if TYPE_CHECKING:
    from kilocard.net.server import Server

log = logging.getLogger(__name__)

#: After an error answer we read on and throw away for so long (s): closing at once would make the kernel send RST,
#: and the client would lose the answer that tells it what was wrong.
LINGER = 1.0


class Connection(asyncio.Protocol):
    def __init__(self, server: Server) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._reader = RequestReader(max_head_bytes=server.max_head_bytes, max_body_bytes=server.max_body_bytes)
        self._queue: deque[Request | ClientError] = deque()
        self._reply: Reply | None = None
        self._task: asyncio.Task[None] | None = None
        self._paused_writing = False
        self._paused_reading = False
        self._lingering = False
        #: since when we wait for the client: for a request to begin, or for its end
        self._waiting_since = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._tick = min(server.idle_timeout, server.request_timeout)
        #: done when the connection is no more
        self.closed: asyncio.Future[None] = self._loop.create_future()

    # the transport's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's does not say that it is one
        self._server.connections.add(self)
        self._arm(self._tick)

    def data_received(self, data: bytes) -> None:
        if self._lingering:
            return
        was_mid = self._reader.mid_request
        try:
            self._queue.extend(self._reader.feed(data))
            if self._reader.error is not None:
                self._queue.append(self._reader.error)
        except ClientError as error:
            self._queue.append(error)
        if self._reader.mid_request and not was_mid:
            self._waiting_since = self._loop.time()
        if len(self._queue) > self._server.max_pipelined:
            self._paused_reading = True
            self._transport.pause_reading()
        if self._task is None:
            self._next()

    def eof_received(self) -> bool:
        """Like uvicorn: a client that has shut down its side has gone."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        self._reader.close()
        if self._timer is not None:
            self._timer.cancel()
        if self._reply is not None:
            self._reply.set_paused(False)
        if self._task is not None:
            self._task.cancel()
        self._queue.clear()
        if not self.closed.done():
            self.closed.set_result(None)

    def pause_writing(self) -> None:
        self._paused_writing = True
        if self._reply is not None:
            self._reply.set_paused(True)

    def resume_writing(self) -> None:
        self._paused_writing = False
        if self._reply is not None:
            self._reply.set_paused(False)

    # the server's calls

    def close_when_idle(self) -> None:
        if self._task is None and not self._queue and not self._reader.mid_request:
            self._transport.close()

    def cut(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._transport.abort()

    # one request after the other

    def _next(self) -> None:
        if self._transport.is_closing():
            return
        if not self._queue:
            if self._reader.wants_continue:
                self._reader.wants_continue = False
                self._transport.write(CONTINUE)
            if self._server.closing and not self._reader.mid_request:
                self._transport.close()
            return
        item = self._queue.popleft()
        if self._paused_reading and len(self._queue) <= self._server.max_pipelined // 2:
            self._paused_reading = False
            self._transport.resume_reading()
        if isinstance(item, ClientError):
            self._refuse(item)
            return
        reply = Reply(item, self._transport, self._server.headers, close=self._server.closing)
        reply.paused = self._paused_writing
        self._reply = reply
        self._task = self._loop.create_task(self._handle(item, reply))

    async def _handle(self, request: Request, reply: Reply) -> None:
        try:
            answer = await self._server.handler(request, reply)
            if not reply.started and not reply.finished:
                if answer is None:
                    raise RuntimeError(f"the handler of {request.method} {request.path} gave no answer")
                status, content_type, body = answer
                await reply.send(status, body, content_type)
        except asyncio.CancelledError:
            if not self._transport.is_closing():
                self._transport.abort()  # a handler that was cancelled by its own server leaves no half response
            raise
        except Gone:
            pass
        except KilocardError as error:
            self._answer_error(reply, error.http_status, error)
        except Exception:
            log.exception("handler of %s %s failed", request.method, request.path)
            self._answer_error(reply, 500, KilocardError("internal error: see the server's log"))
        finally:
            self._reply = self._task = None
        if not reply.finished:
            self._transport.abort()
        elif not self._transport.is_closing():
            self._after(reply)

    def _after(self, reply: Reply) -> None:
        self._waiting_since = self._loop.time()
        if reply.closes:
            self._transport.close()
        else:
            self._next()

    def _answer_error(self, reply: Reply, status: int, error: KilocardError) -> None:
        if reply.started or reply.gone:
            if not reply.finished:
                self._transport.abort()
            return
        headers = []
        if error.retry_after is not None:
            headers.append(("retry-after", str(max(1, round(error.retry_after)))))
        reply.send_now(status, error_body(error), JSON, headers)

    def _refuse(self, error: ClientError) -> None:
        """What came is not a request: say so, and read no more from this client."""
        self._lingering = True
        self._queue.clear()
        body = error_body(error)
        head = response_head(
            error.http_status,
            [
                ("content-type", JSON),
                ("content-length", str(len(body))),
                ("connection", "close"),
                *self._server.headers,
            ],
        )
        self._transport.write(head + body)
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._loop.call_later(LINGER, self._transport.abort)

    # one lazy timer: it looks at what we wait for now, instead of being moved with each request

    def _arm(self, delay: float) -> None:
        self._timer = self._loop.call_later(delay, self._look_at_the_time)

    def _look_at_the_time(self) -> None:
        now = self._loop.time()
        if self._lingering:
            return
        if self._task is not None or self._queue:
            self._arm(self._tick)
            return
        mid = self._reader.mid_request
        limit = self._server.request_timeout if mid else self._server.idle_timeout
        left = self._waiting_since + limit - now
        if left > 0.001:
            self._arm(min(left, self._tick))
        elif mid:
            self._refuse(RequestTimeout(f"the request did not arrive within {limit:g} s"))
        else:
            self._transport.close()
