"""What limits cost a request: counted in this process, and through Redis. CPU of the gateway's side, and time.

    python -m benchmarks.shared_limits                    # starts a redis-server of its own
    python -m benchmarks.shared_limits --url redis://…    # or uses that one, which it does not clean up

Each request reserves and settles, as in a gateway. `redis-py` is the same script through that client, if it is
installed: what a client for everything would cost.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable

import uvloop

from kilocard.spec.model import TenantLimits
from kilocard.stores.redis_limits import RedisLimits
from kilocard.tenancy.book import Book
from kilocard.tenancy.limits import Ask, Denied, Grant, LimitStore, Scope

REQUESTS = 12_000
AT_ONCE = (1, 16, 64)
WALL = 1_795_996_500.0  # a day without budgets is as good as another
SCOPES = (Scope("bench", "", TenantLimits(10**9, 10**12, 10**6)),)


def row(name: str, at_once: int, cpu: float, waits: list[float]) -> None:
    waits.sort()
    print(
        f"{name:<10} {at_once:>7} {cpu / len(waits) * 1e6:>10.1f} {statistics.median(waits) * 1e3:>8.2f} "
        f"{waits[len(waits) * 99 // 100] * 1e3:>8.2f}"
    )


async def measure(name: str, request: Callable[[], Awaitable[float]]) -> None:
    """`request` returns the seconds that it waited."""
    for at_once in AT_ONCE:
        waits: list[float] = []

        async def client(count: int, waits: list[float] = waits) -> None:
            for _ in range(count):
                waits.append(await request())

        await client(200)
        waits.clear()
        before = time.process_time()
        await asyncio.gather(*[client(REQUESTS // at_once) for _ in range(at_once)])
        row(name, at_once, time.process_time() - before, waits)


def through(store: LimitStore) -> Callable[[], Awaitable[float]]:
    loop = asyncio.get_running_loop()

    async def request() -> float:
        begun = time.monotonic()
        answer: asyncio.Future[Grant | Denied] = loop.create_future()
        store.reserve(Ask(SCOPES, 100, 50, True, WALL, 60.0), begun, answer.set_result)
        grant = await answer
        assert isinstance(grant, Grant)
        waited = time.monotonic() - begun
        await asyncio.sleep(0)  # the request runs
        store.settle(grant, 120, time.monotonic())
        return waited

    return request


async def main(url: str) -> None:
    print(f"{'':<10} {'at once':>7} {'CPU µs':>10} {'p50 ms':>8} {'p99 ms':>8}")
    await measure("book", through(Book()))
    limits = RedisLimits(url, patience=5.0)
    await limits.start()
    if not limits.status().up:
        sys.exit(f"{limits.status().address} can't be used: {limits.status().problem}")
    await measure("redis", through(limits))
    form = limits.form(Ask(SCOPES, 100, 50, True, WALL, 60.0))
    try:
        from redis.asyncio import Redis
    except ImportError:
        print("redis-py   skipped: not installed")
    else:
        client = Redis.from_url(url)
        reserve, settle = words(form.reserve), words(form.settle)

        async def request() -> float:
            begun = time.monotonic()
            answer = await client.execute_command(*reserve, 150, f"{limits.session:016}")
            waited = time.monotonic() - begun
            await client.execute_command(*settle, answer.split()[1], 0, 150, 120, f"{limits.session:016}")
            return waited

        await measure("redis-py", request)
        await client.aclose()
    await limits.close()


def words(command: bytes) -> list[bytes]:
    """The arguments of a command that is encoded but for its tail."""
    return command.split(b"\r\n")[2::2]


def own_server(folder: str) -> tuple[subprocess.Popen[bytes], str]:
    program = shutil.which("redis-server")
    if program is None:
        sys.exit("redis-server is not installed: apt-get install redis-server, or give --url")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", folder, "--save", ""],
        stdout=subprocess.DEVNULL,
    )
    for _ in range(100):
        time.sleep(0.05)
        with socket.socket() as trial:
            if trial.connect_ex(("127.0.0.1", port)) == 0:
                break
    return server, f"redis://127.0.0.1:{port}/0"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="a Redis that is there; default: one of its own")
    url = parser.parse_args().url
    with tempfile.TemporaryDirectory() as folder:
        server = None
        if url is None:
            server, url = own_server(folder)
        try:
            uvloop.run(main(url))
        finally:
            if server is not None:
                server.kill()
                server.wait()
