"""An emulated engine that some bodies kill, as a bug in a kernel would. `python -m benchmarks.soak.engine --port …`."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from typing import NoReturn

from kilocard.emulator.faults import Fault
from kilocard.emulator.replica import Replica
from kilocard.emulator.settings import Settings
from kilocard.net.loop import run
from kilocard.net.reply import Answer, Reply
from kilocard.wire.http1 import Request

#: a body with this in it kills; digits that name it follow, then so many milliseconds until it does
POISON = b"poison-body-"
#: the exit code of such a death
DEAD_OF_POISON = 66


class Mortal(Replica):
    async def _work(self, request: Request, reply: Reply, fault: Fault | None) -> Answer | None:
        name = poison_in(request.body)
        if name is not None:
            asyncio.get_running_loop().call_later(int(name.rpartition("-")[2]) / 1000, _die, name)
        return await super()._work(request, reply, fault)


def poison_in(body: bytes) -> str | None:
    """The name of the poison in a body: its number, a dash and the milliseconds until it kills."""
    at = body.find(POISON)
    return body[at + len(POISON) :].split(b" ")[0].decode() if at >= 0 else None


def _die(name: str) -> NoReturn:
    print(f"dies of {name}", file=sys.stderr, flush=True)
    os._exit(DEAD_OF_POISON)


async def _serve(settings: Settings, port: int) -> None:
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    async with Mortal(settings) as replica:
        await replica.start(port=port)
        await stopping.wait()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak.engine", description=__doc__)
    for name in ("port", "seed", "max-num-seqs"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--speed", type=float, required=True)
    a = parser.parse_args()
    run(_serve(Settings((a.model,), max_num_seqs=a.max_num_seqs, speed=a.speed, seed=a.seed), a.port))


if __name__ == "__main__":
    main()
