"""Connections of the small server and client are freed by reference counts: a collector runs only rarely."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections import Counter

import uvloop

from kilocard.core.errors import UpstreamError
from kilocard.net.client import fetch
from kilocard.net.connection import Connection as ServerConnection
from kilocard.net.exchange import Connection as ClientConnection
from kilocard.net.reply import Answer, Reply
from kilocard.net.server import Server
from kilocard.wire.http1 import Request, RequestReader

KINDS = (ServerConnection, ClientConnection, RequestReader)


def test_connections_leave_no_garbage() -> None:
    async def handler(request: Request, reply: Reply) -> Answer:
        return Answer(200, "application/json", "{}")

    def there() -> Counter[str]:
        return Counter(type(one).__module__ for one in gc.get_objects() if isinstance(one, KINDS))

    async def story() -> Counter[str]:
        server = Server(handler)
        port = await server.start("127.0.0.1", 0)
        gc.collect()
        before = there()  # what other tests have left where it can be reached
        gc.disable()
        try:
            for _ in range(5):
                assert (await fetch(f"http://127.0.0.1:{port}/x", timeout=5)).status == 200
            async with asyncio.timeout(20):
                while server.connections:
                    await asyncio.sleep(0.01)
            for _ in range(50):  # sockets that are closed take a turn or two, on a busy machine more
                if not (left := there() - before):
                    break
                await asyncio.sleep(0.05)
            return left
        finally:
            gc.enable()
            await server.close(grace=0)

    assert not uvloop.run(story())


def test_calls_that_fail_leave_none_either() -> None:
    """A dead replica is asked again and again, for days: an error's traceback must not keep its connection."""

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.abort()

    async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"what?\r\n\r\n")
        await reader.read()
        writer.close()

    async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    def there() -> int:
        return sum(isinstance(one, (*KINDS, UpstreamError)) for one in gc.get_objects())

    async def story() -> int:
        servers = [await asyncio.start_server(what, "127.0.0.1", 0) for what in (hang_up, nonsense, silence)]
        ports = [server.sockets[0].getsockname()[1] for server in servers]
        gc.collect()
        before = there()  # what other tests have left where it can be reached
        gc.disable()
        try:
            for _ in range(5):
                for port in (*ports, 9):  # nobody listens on 9, discard
                    with contextlib.suppress(UpstreamError):
                        await fetch(f"http://127.0.0.1:{port}/x", timeout=0.05)
            for _ in range(50):  # sockets that are closed take a turn or two, on a busy machine more
                if (left := there() - before) == 0:
                    break
                await asyncio.sleep(0.05)
            return left
        finally:
            gc.enable()
            for server in servers:
                server.close()

    assert uvloop.run(story()) == 0
