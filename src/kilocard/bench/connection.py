"""One non-blocking TCP connection of the load client, plain or TLS, with the kernel's own times of arrival."""

from __future__ import annotations

import contextlib
import errno
import socket
import ssl
import struct
from functools import partial
from typing import Any, Protocol

from kilocard.bench.loop import ENDED, READ, WRITE, Loop

#: Linux: ask for the time at which the last byte of what is read came (socket(7), SO_TIMESTAMPNS). The socket module
#: has no name for it; 35 is its number on every architecture but parisc, sparc, alpha and mips.
SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("@qq")
_ANCILLARY_BYTES = socket.CMSG_SPACE(_TIMESPEC.size)
READ_BYTES = 64 * 1024


class Owner(Protocol):
    def connected(self, connection: Connection) -> None:
        """Ready to send, TLS included."""

    def received(self, connection: Connection, data: bytes, stamp: float, exact: bool, floor: float) -> None:
        """`exact`: the stamp is the kernel's. Else it is when the socket was seen readable."""

    def lost(self, connection: Connection, error: OSError | None, stamp: float) -> None:
        """Ended: None is an orderly end. Called once, and never after `close`."""


class Connection:
    """Reads are stamped at once and handed to the owner when the loop has time (`Loop.later`)."""

    def __init__(
        self, loop: Loop, address: tuple[int, Any], owner: Owner, tls: ssl.SSLContext | None, host: str
    ) -> None:
        """Raises OSError where not even an attempt is possible."""
        family, place = address
        self.address = address
        self.open = False
        self.closed = False
        #: requests that it has carried
        self.used = 0
        self.idle_since = 0.0
        #: when the last byte that was to be sent was handed to the kernel
        self.sent_s = loop.now()
        self._loop = loop
        self._owner = owner
        self._out = b""
        self._stamp = loop.now()
        self._reading = True
        self._socket = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._tls: _Tls | None = None if tls is None else _Tls(tls, host)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with contextlib.suppress(OSError):  # not Linux: `exact` is never true
                self._socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            code = self._socket.connect_ex(place)
            if code not in (0, errno.EINPROGRESS):
                raise OSError(code, errno.errorcode.get(code, "connect"))
        except OSError:
            self._socket.close()
            raise
        self._events = READ | WRITE
        loop.watch(self._socket.fileno(), self._events, self)

    @property
    def sent(self) -> bool:
        """Everything is with the kernel."""
        return not self._out

    def send(self, data: bytes) -> None:
        """What the kernel does not take at once goes when it can. A failure shows when the connection is read."""
        if self._tls is not None:
            data = self._tls.seal(data)
        self._out = self._out + data if self._out else data
        self._flush()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._loop.forget(self._socket.fileno())
            self._socket.close()

    # the loop's side

    def ready(self, events: int, now: float, floor: float) -> None:
        if not self.open and (self._tls is None or not self._tls.begun):
            self._finish_connect(now)
        elif events & (READ | ENDED) and self._reading:
            self._read(now, floor)
        if self._out and events & WRITE and not self.closed:
            self._flush()

    def _finish_connect(self, now: float) -> None:
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._end(OSError(code, errno.errorcode.get(code, "connect")), now)
        elif self._tls is None:
            self._open()
        else:
            self._shake(now)

    def _open(self) -> None:
        self.open = True
        self._want(READ)
        self._owner.connected(self)

    def _shake(self, now: float) -> None:
        assert self._tls is not None
        try:
            done = self._tls.shake()
        except ssl.SSLError as error:
            self._out += self._tls.outgoing()
            self._flush()  # the alert, so that the server's log says why
            self._end(error, now)
            return
        self._out += self._tls.outgoing()
        self._want(READ)
        self._flush()
        if done:
            self._open()

    def _read(self, now: float, floor: float) -> None:
        try:
            data, ancillary, _, _ = self._socket.recvmsg(READ_BYTES, _ANCILLARY_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._end(error, now)
            return
        if not data:
            self._end(None, now)
            return
        stamp, exact = now, False
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS:
                seconds, nanoseconds = _TIMESPEC.unpack(payload)
                kernel = (seconds * 1_000_000_000 + nanoseconds - self._loop.wall_offset_ns) * 1e-9
                # A wall clock that jumped in between gives nonsense: then our own time is the better one.
                if self._stamp - 0.001 <= kernel <= now + 0.001:
                    stamp, exact = max(kernel, self._stamp), True
        self._stamp = stamp
        hand_over = self._hand_over if self._tls is None else self._unseal
        self._loop.later(partial(hand_over, data, stamp, exact, floor))

    def _hand_over(self, data: bytes, stamp: float, exact: bool, floor: float) -> None:
        if not self.closed:
            self._owner.received(self, data, stamp, exact, floor)

    def _unseal(self, data: bytes, stamp: float, exact: bool, floor: float) -> None:
        if self.closed:
            return
        assert self._tls is not None
        self._tls.incoming(data)
        try:
            if not self.open:
                self._shake(stamp)
                if not self.open:
                    return
            plain, ended = self._tls.unseal()
        except ssl.SSLError as error:
            self._end(error, stamp)
            return
        self._out += self._tls.outgoing()  # TLS 1.3 key updates are answered
        if self._out:
            self._flush()
        if plain:
            self._owner.received(self, plain, stamp, exact, floor)
        if ended and not self.closed:
            self._end(None, stamp)

    def _end(self, error: OSError | None, now: float) -> None:
        """After everything that was read before it."""
        if not self._reading:
            return
        self._reading = False
        self._out = b""
        self._loop.forget(self._socket.fileno())
        self._loop.later(lambda: None if self.closed else self._owner.lost(self, error, now))

    def _flush(self) -> None:
        if self._out:
            try:
                self._out = self._out[self._socket.send(self._out) :]
                self.sent_s = self._loop.now()
            except BlockingIOError:
                pass
            except OSError:
                self._out = b""  # reading says what happened, and there may be an answer to read before
        self._want(READ | WRITE if self._out else READ)

    def _want(self, events: int) -> None:
        if events != self._events and self._reading:
            self._events = events
            self._loop.change(self._socket.fileno(), events)


class _Tls:
    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        self.begun = False
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._in, self._out, server_hostname=host)

    def incoming(self, data: bytes) -> None:
        self._in.write(data)

    def outgoing(self) -> bytes:
        return self._out.read()

    def shake(self) -> bool:
        """True when the handshake is done. Raises ssl.SSLError."""
        self.begun = True
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def seal(self, data: bytes) -> bytes:
        self._object.write(data)
        return self._out.read()

    def unseal(self) -> tuple[bytes, bool]:
        """(plain text, whether the other side said goodbye). Raises ssl.SSLError."""
        pieces = []
        try:
            while piece := self._object.read(READ_BYTES):
                pieces.append(piece)
        except ssl.SSLWantReadError:
            return b"".join(pieces), False
        except ssl.SSLZeroReturnError:
            pass
        return b"".join(pieces), True
