"""How responses are written to one client: heads, bodies, errors, always one behind the other."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Final

from kilocard.core.errors import KilocardError
from kilocard.gateway.borrowed import reset_at_close
from kilocard.gateway.heads import ASK_FOR_KEY, REFUSED_KEY, status_line
from kilocard.gateway.outbox import Posting
from kilocard.gateway.rate_headers import without_limits

if TYPE_CHECKING:
    from kilocard.gateway.plane import Plane

#: bytes of an answer that may wait for the end of a turn; a larger one is not worth keeping in memory for that
MAX_POSTED: Final = 65536


class ClientWriter(Posting):
    """The writing half of a client's connection.

    A whole answer waits for the end of the event loop's turn (outbox.py), or until something else is written.
    """

    __slots__ = ("can_chunk", "headers", "keep_alive", "plane", "request_id")

    def __init__(self, plane: Plane) -> None:
        super().__init__()
        self.plane = plane
        self.can_chunk = True
        self.keep_alive = True
        self.request_id = b""
        #: further lines for the head of the answer to the request that runs
        self.headers = b""

    def write(self, data: bytes) -> None:
        if self._posted:
            self.send_posted()
        self.transport.write(data)

    def write_head(self, block: bytes, framing: bytes | None) -> None:
        """`block`: status line and headers. Without framing (HTTP/1.0, unknown length) the end of the connection is
        the end of the body."""
        if framing is None:
            self.keep_alive = False
        if not self.request_id:
            self.request_id = self.plane.new_request_id()
        if self.headers:
            block = without_limits(block) + self.headers
        self.write(
            b"%bx-request-id: %b\r\n%b%b\r\n" % (block, self.request_id, framing or b"", self._connection_header())
        )

    def write_whole(self, block: bytes, body: bytes) -> None:
        """`block`: status line and headers."""
        if not self.request_id:
            self.request_id = self.plane.new_request_id()
        if self.headers:
            block = without_limits(block) + self.headers
        if self.keep_alive and self.can_chunk and not self._posted and len(body) <= MAX_POSTED:
            self._posted = b"%bx-request-id: %b\r\ncontent-length: %d\r\n\r\n%b" % (
                block, self.request_id, len(body), body,
            )  # fmt: skip
            self.plane.outbox.post(self)
        else:
            self.write(
                b"%bx-request-id: %b\r\ncontent-length: %d\r\n%b\r\n%b"
                % (block, self.request_id, len(body), self._connection_header(), body)
            )

    def write_error(self, error: KilocardError, body: bytes) -> None:
        self.write_whole(error_block(error), body)

    def close_after_write(self) -> None:
        self.keep_alive = False

    def abort(self) -> None:
        self.transport.abort()

    def cut(self) -> None:
        """End the connection so that what was sent is not taken for all of it."""
        if not self.can_chunk:  # without chunks the end of a connection may be that of a body, but for a reset
            reset_at_close(self.transport)
        self.transport.abort()

    def _connection_header(self) -> bytes:
        if not self.keep_alive:
            return b"connection: close\r\n"
        return b"" if self.can_chunk else b"connection: keep-alive\r\n"


def error_block(error: KilocardError, headers: bytes = b"") -> bytes:
    """Status line and headers of an error's answer."""
    block = status_line(error.http_status) + b"content-type: application/json\r\n" + headers
    if error.http_status == 401:
        block += ASK_FOR_KEY if error.code == "missing_api_key" else REFUSED_KEY
    if error.retry_after is not None:
        block += b"retry-after: %d\r\n" % max(1, ceil(error.retry_after))
    return block
