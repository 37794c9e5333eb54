"""The line between the supervisor and one worker: messages both ways over a Unix socket pair."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

import msgspec

from kilocard.core.errors import KilocardError
from kilocard.workers.frames import Frames, frame
from kilocard.workers.messages import Message

#: bytes that wait to be read by the other side: it hangs, and is cut off
MAX_UNREAD = 64 * 1024 * 1024

Heard = TypeVar("Heard")
log = logging.getLogger("kilocard.workers")
_encode = msgspec.msgpack.Encoder().encode


def batch(messages: list[Message]) -> bytes:
    """Encoded once, to be sent to many."""
    return frame(_encode(messages))


class Link(asyncio.Protocol, Generic[Heard]):
    """One end. What is said within one turn of the loop goes out as one batch.

    `heard` is called for each message, `lost` once, when the line is cut from either side.
    """

    def __init__(self, understood: Any, heard: Callable[[Heard], None], lost: Callable[[], None]) -> None:
        """`understood`: the union of the messages that this end understands."""
        self._decode = msgspec.msgpack.Decoder(list[understood]).decode
        self._heard = heard
        self._lost = lost
        self._frames = Frames()
        self._waiting: list[Message] = []
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()

    @property
    def open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def say(self, message: Message) -> None:
        """Soon. What is said to a line that is cut goes nowhere."""
        if not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting.append(message)

    def say_encoded(self, batch: bytes) -> None:
        """Now, after what was said before."""
        self._flush()
        self._write(batch)

    def close(self) -> None:
        """What was said before still goes out."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def _flush(self) -> None:
        if self._waiting:
            messages, self._waiting = self._waiting, []
            self._write(batch(messages))

    def _write(self, data: bytes) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.write(data)
        if transport.get_write_buffer_size() > MAX_UNREAD:
            log.error("the other side of the line has not read %d bytes: cut off", MAX_UNREAD)
            transport.abort()

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are not of asyncio's class

    def data_received(self, data: bytes) -> None:
        try:
            for payload in self._frames.feed(data):
                for message in self._decode(payload):
                    self._heard(message)
        except (KilocardError, msgspec.MsgspecError) as error:
            log.error("the line between supervisor and worker is broken: %s", error)
            if self._transport is not None:
                self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._lost()
