"""Connections of the small server and client are freed by reference counts: a collector runs only rarely."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter

import uvloop

from kilocard.net.client import fetch
from kilocard.net.connection import Connection as ServerConnection
from kilocard.net.exchange import Connection as ClientConnection
from kilocard.net.reply import Answer, Reply
from kilocard.net.server import Server
from kilocard.wire.http1 import Request, RequestReader


def test_connections_leave_no_garbage() -> None:
    kinds = (ServerConnection, ClientConnection, RequestReader)

    async def handler(request: Request, reply: Reply) -> Answer:
        return Answer(200, "application/json", "{}")

    async def story() -> Counter[str]:
        server = Server(handler)
        port = await server.start("127.0.0.1", 0)
        gc.collect()
        gc.disable()
        try:
            for _ in range(5):
                assert (await fetch(f"http://127.0.0.1:{port}/x", timeout=5)).status == 200
            async with asyncio.timeout(3):
                while server.connections:
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            return Counter(type(one).__module__ for one in gc.get_objects() if isinstance(one, kinds))
        finally:
            gc.enable()
            await server.close(grace=0)

    assert not uvloop.run(story())
