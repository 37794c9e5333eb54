"""What a load tester really sends: a relay in front of the server passes all bytes on and keeps the requests.

Only for looking. Nothing is measured through it.
"""

from __future__ import annotations

import contextlib
import json
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httptools

from benchmarks.bench_truth.request import fields_of


@dataclass
class Sent:
    """Requests for answers, in the order in which they were complete."""

    bodies: list[dict[str, Any]] = field(default_factory=list)

    def fields(self) -> dict[str, Any]:
        """Of the last request, which every tool sends as it measures. Raises SystemExit when there was none."""
        if not self.bodies:
            raise SystemExit("no request for an answer came through the relay")
        return fields_of(self.bodies[-1])


@contextmanager
def relay(url: str) -> Iterator[tuple[str, Sent]]:
    """The relay's URL, and what came through it until now."""
    parts = urlsplit(url)
    target = (parts.hostname or "127.0.0.1", parts.port or 80)
    sent = Sent()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection(target) as upstream:
                back = threading.Thread(target=_copy, args=(upstream, self.request, None), daemon=True)
                back.start()
                _copy(self.request, upstream, _Reader(sent))
                back.join()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", sent
        server.shutdown()


def _copy(source: socket.socket, to: socket.socket, reader: _Reader | None) -> None:
    with contextlib.suppress(OSError):  # who closed first does not matter here
        while data := source.recv(65536):
            to.sendall(data)
            if reader is not None:
                reader.feed(data)
        to.shutdown(socket.SHUT_WR)


class _Reader:
    """One connection's requests."""

    def __init__(self, sent: Sent) -> None:
        self._sent = sent
        self._body = b""
        self._url = b""
        self._parser = httptools.HttpRequestParser(self)

    def feed(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._body, self._url = b"", b""

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        if self._url.endswith(b"/completions"):
            self._sent.bodies.append(json.loads(self._body))
