"""One connection to Redis or Valkey: commands of one turn of the loop leave together, replies come in their order."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from math import inf
from typing import Any

from kilocard.core.errors import StoreError
from kilocard.stores.redis_url import RedisUrl
from kilocard.stores.resp import Replies, Reply, ReplyError, command

#: seconds for name look-up, TCP and TLS together
CONNECT = 2.0
#: An answer that is late may be there already, unread, because this process was busy: look once more after this long.
_AGAIN = 0.005


class Waiting:
    """A command that has been sent. Subclasses say what is done with the answer."""

    __slots__ = ("command", "until")

    def __init__(self, command: bytes, until: float) -> None:
        self.command = command
        #: monotonic seconds
        self.until = until

    def answered(self, reply: Reply) -> None:
        raise NotImplementedError

    def lost(self, reason: str) -> None:
        """The connection ended first: whether the command was carried out is not known."""
        raise NotImplementedError


class Future(Waiting):
    """For who awaits it. Errors of the server, and the loss of the connection, are raised as StoreError."""

    __slots__ = ("future",)

    def __init__(self, command: bytes, until: float) -> None:
        super().__init__(command, until)
        self.future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

    def answered(self, reply: Reply) -> None:
        if self.future.done():
            return
        if isinstance(reply, ReplyError):
            self.future.set_exception(StoreError(str(reply)))
        else:
            self.future.set_result(reply)

    def lost(self, reason: str) -> None:
        if not self.future.done():
            self.future.set_exception(StoreError(reason))


class RedisLink(asyncio.Protocol):
    """Ends by itself when an answer is late."""

    def __init__(self) -> None:
        #: called once, with the reason, before those that wait are told
        self.on_lost: Callable[[str], None] = lambda reason: None
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._replies = Replies()
        self._out: list[bytes] = []
        self._flushing = False
        self._later: asyncio.TimerHandle | None = None
        self._waiting: deque[Waiting] = deque()
        #: looks whether the oldest is late
        self._timer: asyncio.TimerHandle | None = None
        self._looks_at = inf
        self.up = False

    # -- asyncio.Protocol

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self.up = True

    def data_received(self, data: bytes) -> None:
        try:
            replies = self._replies.feed(data)
        except ValueError as error:
            self.drop(f"it does not speak RESP: {error}")
            return
        waiting = self._waiting
        for reply in replies:
            if not self.up:  # an answer before this one has ended the connection, and all others were told so
                return
            waiting.popleft().answered(reply)

    def connection_lost(self, error: Exception | None) -> None:
        self.drop(f"the connection broke: {error}" if error else "it closed the connection")

    # -- commands

    def send(self, waiting: Waiting) -> None:
        """It leaves at the end of this turn of the event loop."""
        if not self.up:
            waiting.lost("the connection is closed")
            return
        self._queue(waiting)
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def send_soon(self, waiting: Waiting, within: float) -> None:
        """It leaves with the next one, at the latest `within` seconds: nobody waits for it."""
        if not self.up:
            waiting.lost("the connection is closed")
            return
        self._queue(waiting)
        if not self._flushing and self._later is None:
            self._later = self._loop.call_later(within, self._flush)

    def _queue(self, waiting: Waiting) -> None:
        self._out.append(waiting.command)
        self._waiting.append(waiting)
        if waiting.until < self._looks_at:
            self._look_at(waiting.until)

    def _flush(self) -> None:
        self._flushing = False
        if self._later is not None:
            self._later.cancel()
            self._later = None
        if self._out and self._transport is not None and self.up:
            self._transport.write(b"".join(self._out))
        self._out.clear()

    async def ask(self, words: bytes, patience: float) -> Reply:
        """Raises StoreError."""
        asked = Future(words, time.monotonic() + patience)
        self.send(asked)
        return await asked.future

    # -- the end

    def drop(self, reason: str) -> None:
        """End it at once. What was sent may be carried out or not."""
        if not self.up:
            return
        self.up = False
        for timer in (self._timer, self._later):
            if timer is not None:
                timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        self._out.clear()
        waiting, self._waiting = self._waiting, deque()
        self.on_lost(reason)
        for one in waiting:
            one.lost(reason)

    def _look_at(self, moment: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._looks_at = moment
        self._timer = self._loop.call_later(max(0.0, moment - time.monotonic()), self._look)

    def _look(self, late: Waiting | None = None) -> None:
        self._timer = None
        if not self._waiting:
            self._looks_at = inf
            return
        oldest = self._waiting[0]
        if oldest.until > time.monotonic():
            self._look_at(oldest.until)
        elif oldest is late:
            self.drop("it does not answer")
        else:
            self._timer = self._loop.call_later(_AGAIN, self._look, oldest)


async def connect(url: RedisUrl, on_lost: Callable[[str], None]) -> RedisLink:
    """Connected and let in. Raises StoreError; `on_lost` is not called then."""
    link = RedisLink()
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(CONNECT):
            await loop.create_connection(lambda: link, url.host, url.port, ssl=url.tls)
        if url.password is not None:
            user = () if url.username is None else (url.username,)
            await link.ask(command("AUTH", *user, url.password), CONNECT)
        if url.database:
            await link.ask(command("SELECT", url.database), CONNECT)
    except TimeoutError as error:
        raise StoreError(f"no connection within {CONNECT:g} s") from error
    except (OSError, UnicodeError) as error:  # UnicodeError: a host name that no DNS could carry
        raise StoreError(f"no connection: {getattr(error, 'strerror', None) or error}") from error
    except BaseException:
        link.drop("")
        raise
    link.on_lost = on_lost
    return link
