"""Requests that the gateway has to refuse, and with what."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.soak.cast import cast
from benchmarks.soak.wire import post

KEY = cast(1.0)["free"].key

#: gateway.limits of the run, see cluster.py
MAX_HEAD = 16 * 1024
MAX_BODY = 256 * 1024


@dataclass(frozen=True)
class Case:
    name: str
    data: bytes
    status: int
    #: the gateway closes the connection behind its answer
    closes: bool = True
    #: kilocard_requests_total counts it
    counted: bool = False


_START = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\n".encode()
_GET = f"GET %s HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\n\r\n"

#: nothing to refuse where the gateway speaks TLS
TLS_HELLO = Case("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400)

MALFORMED = [
    TLS_HELLO,
    Case("two lengths", _START + b"content-length: 2\r\nContent-Length: 3\r\n\r\n{}", 400),
    Case("length and chunks", _START + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    Case("lone line feed", _START + b"x: a\ny: b\r\ncontent-length: 2\r\n\r\n{}", 400),
    Case("space before colon", _START + b"content-length : 2\r\n\r\n{}", 400),
    Case("bad chunk", _START + b"transfer-encoding: chunked\r\n\r\nzz\r\n", 400),
    Case("huge head", _START + b"x: " + b"y" * MAX_HEAD + b"\r\n\r\n", 431),
    Case("head without end", _START + b"x: y\r\n" * (MAX_HEAD // 6 + 9), 431),
    Case("huge body", post(b"x" * (MAX_BODY + 1), key=KEY), 413),
    Case("huge chunked body", post(b"x" * (MAX_BODY + 1), key=KEY, chunks=9), 413),
    Case("half a head", _START[:40], 408),
    Case("half a body", _START + b"content-length: 200\r\n\r\n{", 408),
    Case("no JSON", post(b"{", key=KEY), 400, closes=False),
    Case("no body", post(b"", key=KEY), 400, closes=False),
    Case("no key", post({"model": "m"}, key=None), 401, closes=False),
    Case("wrong key", post({"model": "m"}, key="guess"), 401, closes=False),
    Case("no such path", (_GET % "/nope").encode(), 404, closes=False),
    Case("wrong method", (_GET % "/v1/completions").encode(), 405, closes=False),
    Case("not its model", post({"model": "m", "prompt": "x"}, key=cast(1.0)["tester"].key), 403, closes=False),
    Case("unknown model", post({"model": "other", "prompt": "x"}, key=KEY), 404, closes=False, counted=True),
]
