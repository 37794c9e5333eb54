"""What a connection was made of is freed with it, by reference counts.

The gateway's collector is set to run very rarely, since its pauses would be stalls of every stream. So a cycle on a
connection is a leak for hours.
"""

from __future__ import annotations

import asyncio
import gc
from collections import Counter

import pytest
from stub_engine import answer, gateway_over, run, until

from kilocard.gateway.downstream import ClientConnection
from kilocard.gateway.framing import RequestFramer
from kilocard.gateway.upstream import UpstreamConnection

START = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\n"
GOOD = START + b'content-length: 28\r\n\r\n{"model":"m","prompt":"xxx"}'


@pytest.mark.parametrize(
    ("data", "answered"),
    [
        pytest.param(GOOD, True, id="a whole request"),
        pytest.param(b"", False, id="nothing"),
        pytest.param(START, False, id="half a head"),
        pytest.param(
            START + b"content-length: 28\r\n\r\n{",
            False,
            id="half a body",
        ),
        pytest.param(
            START + b"content-length : 2\r\n\r\n{}",
            True,
            id="a refused head",
        ),
        pytest.param(
            START + b"x: y\r\n" * 20_000,
            True,
            id="a head that is too large",
        ),
    ],
)
def test_connections_leave_no_garbage(data: bytes, answered: bool) -> None:
    kinds = (ClientConnection, RequestFramer, UpstreamConnection)

    def alive() -> Counter[str]:
        return Counter(type(one).__name__ for one in gc.get_objects() if isinstance(one, kinds))

    async def story() -> None:
        async with gateway_over(answer) as setup:
            gc.collect()
            gc.disable()
            try:
                for _ in range(5):
                    reader, writer = await setup.raw()
                    writer.write(data)
                    if answered:
                        assert (await reader.read(12)).startswith(b"HTTP/1.1")
                    else:
                        await asyncio.sleep(0.02)
                    writer.close()
                await until(lambda: not setup.gateway.plane.connections)
                for target in setup.gateway.plane.targets.values():
                    target.connections.close()
                await until(lambda: not alive(), 2.0)
            finally:
                gc.enable()

    run(story())
