"""TLS between a client's socket and its ClientConnection: a protocol to the one, a transport to the other.

The event loop could do this too (`create_server(ssl=…)`). It would tell us of a connection only after its handshake,
so those that never finish one would be in no count; keep the context of its first day, so that a new certificate would
need a new listener; and take 256 KiB for each connection. See docs/decisions/0013.

OpenSSL works on two buffers in memory. What is read from the socket is decrypted and handed on at once; what is written
is encrypted and given to the socket at once. So the socket's own buffer is the only queue, and its backpressure is the
client's.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import TYPE_CHECKING, Any

from kilocard.core.errors import ClientError
from kilocard.gateway.downstream import LINGER_SECONDS, ClientConnection
from kilocard.gateway.heads import status_line
from kilocard.wire.failure import error_body

if TYPE_CHECKING:
    from kilocard.gateway.certificates import Handshakes
    from kilocard.gateway.plane import Plane
    from kilocard.spec.model import Limits

#: first byte of a TLS client's first record
_HANDSHAKE = 22
#: an OpenSSL read gives one record, which is no larger
_RECORD = 16 * 1024


class TlsConnection(asyncio.Protocol):
    """In the plane's count from accept() on; until the handshake is over as itself, then as its ClientConnection."""

    __slots__ = (
        "_began", "_closing", "_count", "_incoming", "_inner", "_outgoing", "_paused", "_plane", "_since", "_ssl",
        "transport",
    )  # fmt: skip

    def __init__(self, plane: Plane, context: ssl.SSLContext, count: Handshakes) -> None:
        self._plane = plane
        self._count = count
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._ssl: ssl.SSLObject | None = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._inner: ClientConnection | None = None
        self._began = self._paused = self._closing = False
        self._since = plane.clock()
        #: the socket's
        self.transport: asyncio.Transport = None  # type: ignore[assignment]  # set before any other callback

    # -- the socket's protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # a TCP transport reads and writes
        if not self._plane.connected(self):
            self._count.refused += 1
            self._closing = True
            transport.close()  # to say more, a handshake would have to be paid for

    def data_received(self, data: bytes) -> None:
        if self._ssl is None or (self._closing and self._inner is None):
            return
        self._incoming.write(data)
        if self._inner is not None or self._shake_hands(self._ssl, data):
            self._hand_on()

    def eof_received(self) -> bool:
        if self._inner is not None:
            self._inner.eof_received()
        return False

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._inner is not None:
            self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        # No circles, so that no garbage collector is needed.
        inner, self._inner, self._ssl = self._inner, None, None
        if inner is not None:
            inner.connection_lost(exc)
            return
        if not self._closing:
            self._count.failed += 1
        self._plane.disconnected(self)

    # -- in the plane's count, before there is a ClientConnection

    def check(self, now: float) -> None:
        """Called about once a second: a handshake has as long as the head of a request."""
        waited = now - self._since
        if self._closing:
            if waited > LINGER_SECONDS:
                self.transport.abort()
        elif waited > self._plane.limits.client_idle:
            self.transport.abort()

    @property
    def receiving(self) -> bool:
        """No request has begun yet."""
        return False

    def bound(self, limits: Limits) -> None:
        """There is nothing to bound yet."""

    # -- the handshake

    def _shake_hands(self, tls: ssl.SSLObject, data: bytes) -> bool:
        """True once it is done."""
        if not self._began and data[0] != _HANDSHAKE:
            self._say_it_is_tls()
            return False
        self._began = True
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except ssl.SSLError:
            self._count.failed += 1
            self._flush()  # the alert says why
            self._closing = True
            self.transport.close()
            return False
        self._flush()
        self._count.ok += 1
        self._plane.disconnected(self)
        inner = self._inner = ClientConnection(self._plane)
        inner.connection_made(self)  # type: ignore[arg-type]  # as much of a transport as it uses
        return True

    def _say_it_is_tls(self) -> None:
        """A plain HTTP client, or nonsense: an answer that it can read, then the end."""
        self._count.plain += 1
        error = ClientError("This port speaks HTTPS: use https:// in the URL.", code="invalid_http")
        body = error_body(error)
        head = status_line(400) + b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
        self.transport.write(head % len(body) + body)
        self._closing = True
        self._since = self._plane.clock()
        if self.transport.can_write_eof():
            self.transport.write_eof()  # what it still sends is thrown away, so that it can read the answer

    # -- the ClientConnection's transport

    def _hand_on(self) -> None:
        """Give the ClientConnection what can be decrypted now."""
        while not self._paused and (tls := self._ssl) is not None and (inner := self._inner) is not None:
            try:
                data = tls.read(_RECORD)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLError:  # forged, cut, or not TLS
                self._flush()
                self.transport.abort()
                return
            if not data:  # close_notify: the client sends no more
                inner.eof_received()
                self.close()
                return
            inner.data_received(data)
            if not self._incoming.pending and not tls.pending():
                break
        if self._outgoing.pending:  # tickets, answers to key updates
            self._flush()

    def _flush(self) -> None:
        data = self._outgoing.read()
        if data and not self.transport.is_closing():
            self.transport.write(data)

    def write(self, data: bytes) -> None:
        tls = self._ssl
        if tls is None or self._closing or not data:
            return
        try:
            tls.write(data)
        except ssl.SSLError:  # the other side has broken the protocol: there is nobody to write to
            self.transport.abort()
            return
        self.transport.write(self._outgoing.read())

    def close(self) -> None:
        """Say goodbye, send what is waiting, end."""
        if self._closing:
            return
        self._closing = True
        if self._ssl is not None:
            with contextlib.suppress(ssl.SSLError):  # it wants the client's goodbye, which is not waited for
                self._ssl.unwrap()
            self._flush()
        self.transport.close()

    def abort(self) -> None:
        self._closing = True
        self.transport.abort()

    def is_closing(self) -> bool:
        return self._closing or self.transport.is_closing()

    def pause_reading(self) -> None:
        self._paused = True
        self.transport.pause_reading()

    def resume_reading(self) -> None:
        self._paused = False
        self.transport.resume_reading()
        if self._incoming.pending or (self._ssl is not None and self._ssl.pending()):
            asyncio.get_running_loop().call_soon(self._hand_on)

    def can_write_eof(self) -> bool:
        """TLS ends both ways at once."""
        return False

    def get_write_buffer_size(self) -> int:
        """Encrypted bytes: nothing waits before it is encrypted."""
        return self.transport.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "socket":  # whoever wrote to it would write plain text
            return default
        return self.transport.get_extra_info("socket" if name == "below" else name, default)
