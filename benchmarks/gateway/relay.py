"""The least that a proxy of this kind can cost: bytes go from a client to a connection of its own and back, and nothing
looks at them. `python -m benchmarks.gateway.relay PORT UPSTREAM_PORT …`
"""

from __future__ import annotations

import asyncio
import sys
from itertools import cycle

import uvloop


class Upstream(asyncio.Protocol):
    def __init__(self, client: asyncio.Transport) -> None:
        self.client = client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]  # TCP only

    def data_received(self, data: bytes) -> None:
        self.client.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.client.close()


class Client(asyncio.Protocol):
    """What comes before there is a connection to the upstream waits for it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.early: list[bytes] = []
        self.upstream: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]  # TCP only
        self.task = asyncio.get_running_loop().create_task(self.connect())

    async def connect(self) -> None:
        loop = asyncio.get_running_loop()
        _, upstream = await loop.create_connection(lambda: Upstream(self.transport), "127.0.0.1", self.port)
        self.upstream = upstream.transport
        self.upstream.write(b"".join(self.early))

    def data_received(self, data: bytes) -> None:
        if self.upstream is None:
            self.early.append(data)
        else:
            self.upstream.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.task.cancel()
        if self.upstream is not None:
            self.upstream.close()


async def serve(port: int, upstreams: list[int]) -> None:
    ports = cycle(upstreams)
    server = await asyncio.get_running_loop().create_server(lambda: Client(next(ports)), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), [int(port) for port in sys.argv[2:]]))
