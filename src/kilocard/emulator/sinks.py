"""Where a request's tokens go: into a stream at once, or nowhere until the last one is there."""

from __future__ import annotations

import asyncio

from kilocard.emulator.chunks import DONE, Answer
from kilocard.emulator.text import piece_json
from kilocard.net.reply import Gone, Reply


class Whole:
    """Counts the tokens of an answer that is sent in one piece (or dies before: `die_after` tokens)."""

    def __init__(self, reply: Reply, *, die_after: int | None = None) -> None:
        self.arrived_at = self.admitted_at = self.first_at = self.last_at = 0.0
        self.produced = 0
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reply = reply
        self._die_after = die_after

    def emit(self, count: int) -> None:
        self.produced += count
        if self._die_after is not None and self.produced >= self._die_after:
            self._reply.abort()

    def done(self) -> None:
        if not self.over.done():
            self.over.set_result(None)


class Stream(Whole):
    """Writes a chunk for each token when it comes. A client that does not read gets its chunks later, not a larger
    buffer: what it is owed is a number."""

    def __init__(
        self,
        reply: Reply,
        answer: Answer,
        tokens: int,
        reason: str,
        offset: int,
        *,
        die_after: int | None = None,
        stall_after: int | None = None,
    ) -> None:
        super().__init__(reply, die_after=die_after)
        self._answer = answer
        self._before = answer.before()
        self._after = answer.after()
        self._tokens = tokens
        self._reason = reason
        self._offset = offset
        self._stall_after = stall_after
        self._begun = False
        self._sent = 0

    def emit(self, count: int) -> None:
        self.produced += count
        if not self._reply.paused:
            self._send()

    def _send(self) -> None:
        reply = self._reply
        if reply.finished:
            return  # died on purpose in an earlier step; its cancellation comes in the loop's next turn
        try:
            if not self._begun:
                self._begun = True
                role = self._answer.role()
                if role:
                    reply.write_now(role)
            while self._sent < self.produced:
                if self._sent == self._die_after:
                    reply.abort()
                    return
                if self._sent == self._stall_after:
                    return
                reply.write_now(self._chunk(self._sent))
                self._sent += 1
        except Gone:
            return  # the connection's own call comes in a moment and cancels the request

    def _chunk(self, index: int) -> bytes:
        if index + 1 < self._tokens:
            return self._before + piece_json(index, self._offset) + self._after
        # The token that ends an answer by itself has no text.
        text = b'""' if self._reason == "stop" else piece_json(index, self._offset)
        return self._before + text + self._answer.after(self._reason)

    async def end(self, prompt: int, *, with_usage: bool) -> None:
        """After the last token: what the client is still owed, the usage, [DONE]."""
        await self._reply.drain()
        self._send()
        if self._sent < self._tokens:  # a stall on purpose: the client has to give up
            await asyncio.get_running_loop().create_future()
        last = self._answer.usage_chunk(prompt, self._tokens) if with_usage else b""
        self._reply.write_now(last + DONE)
        self._reply.finish_now()
