"""Bodies that kill the engine that works on them, sent again and again as clients do, and whoever died of each."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterable, Sequence

from benchmarks.soak.clients import Client
from benchmarks.soak.cluster import Emulator
from benchmarks.soak.engine import DEAD_OF_POISON, POISON
from benchmarks.soak.history import History
from benchmarks.soak.pauses import rest
from benchmarks.soak.results import End

#: seconds between two bodies
PAUSE = (8.0, 15.0)
#: times that each is sent
COPIES = 6
#: seconds until a dead engine is started again
AWAY = (0.2, 3.0)
#: seconds after a death in which it is noticed here
NOTICED = 1.0
#: what the history calls such a death
DIED = "died of poison"
_FOUND_OUT = frozenset({"poison_request"})


class Poison:
    def __init__(self, client: Client, engines: Sequence[Emulator], history: History, seed: int) -> None:
        #: deaths by the name of the body
        self.deaths: Counter[str] = Counter()
        self._client = client
        self._engines = engines
        self._history = history
        self._rng = random.Random(seed + 99)

    async def run(self, stopping: asyncio.Event) -> None:
        burying = asyncio.create_task(self._bury())
        number = 0
        try:
            while await rest(stopping, self._rng.uniform(*PAUSE)):
                number += 1
                await self._send(number)
                if burying.done():
                    burying.result()
        finally:
            self._client.close()
            # those that are dead are back before the run looks at who is at rest
            await asyncio.sleep(AWAY[1] + 1.0)
            burying.cancel()

    async def _send(self, number: int) -> None:
        client, rng = self._client, self._rng
        self._history.begin("poison", time.monotonic(), time.monotonic())
        stream = rng.random() < 0.5
        # for a stream later than its first token now and then: then it breaks, and the next copy kills
        after = rng.choice([1, 5, 80] if stream else [1, 5, 20])
        body = client.chat(stream=stream, tokens=100, length=4)
        body["messages"][0]["content"] = f"{POISON.decode()}{number}-{after} {client.text(4)}"
        refused = 0
        for _ in range(COPIES):
            result = await client.ask("poison", client.post(body), body, refusals=_FOUND_OUT)
            if result.end is End.REFUSED:
                refused += 1
            elif result.end is End.OK or refused:
                self._history.violations.append(f"poison {number}-{after} after {refused} refusals: {result}")
        if not refused:
            self._history.violations.append(f"poison {number}-{after} was never refused")

    async def _bury(self) -> None:
        """Start the dead again, each after a while of its own."""
        waiting: set[Emulator] = set()
        tasks: set[asyncio.Task[None]] = set()
        while True:
            for engine in self._engines:
                if engine not in waiting and (code := engine.child.process.poll()) is not None:
                    if code != DEAD_OF_POISON:
                        self._history.violations.append(f"emulator {engine.name} ended with {code}")
                    waiting.add(engine)
                    tasks.add(asyncio.create_task(self._restart(engine, waiting)))
            for task in [task for task in tasks if task.done()]:
                tasks.discard(task)
                task.result()
            await asyncio.sleep(0.05)

    async def _restart(self, engine: Emulator, waiting: set[Emulator]) -> None:
        span = self._history.begin(DIED, time.monotonic() - NOTICED)
        name = engine.child.log_tail().rpartition("dies of ")[2].split("\n")[0]
        self.deaths[name] += 1
        await asyncio.sleep(self._rng.uniform(*AWAY))
        await engine.restart()
        span.until = time.monotonic()
        waiting.discard(engine)


def judge_poison(deaths: Counter[str], most: int) -> Iterable[str]:
    return [f"poison {name} killed {count} replicas" for name, count in deaths.items() if count > most]
