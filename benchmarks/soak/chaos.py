"""What goes wrong with replicas and when. The plan is drawn from one seed before the run, which only carries it out."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from benchmarks.soak.cluster import Emulator

#: seconds: calm, then few replicas ill, then anything goes
PHASES = (("calm", 3.0), ("mild", 15.0), ("harsh", 12.0))
#: replicas that may be ill at once. Mild is below the attempts of a request, so each has a healthy one to go to
MILD = 2

#: kind: weight
KINDS = {
    "hang": 3, "slow": 2, "error": 3, "die_mid_stream": 4, "refuse": 2, "lie_health": 2, "lie_health_inverted": 1,
    "reset_before_response": 3, "stall_mid_stream": 3, "freeze": 2, "kill": 2,
}  # fmt: skip


@dataclass(frozen=True)
class Fault:
    at: float
    kind: str
    replica: int
    seconds: float
    body: dict[str, Any]


@dataclass
class Illness:
    """When a replica was not itself. `until` is infinite while it lasts."""

    replica: int
    kind: str
    since: float
    until: float = float("inf")


def plan(seed: int, replicas: int, seconds: float) -> list[Fault]:
    """All faults of a run, in order; never two on one replica at once."""
    rng = random.Random(seed)
    kinds, weights = list(KINDS), list(KINDS.values())
    busy_until = [0.0] * replicas
    faults = []
    at = start = 0.0
    phase = 0
    while at < seconds:
        name, length = PHASES[phase % len(PHASES)]
        if at - start >= length:
            start, phase = start + length, phase + 1
            continue
        ill = sum(until > at for until in busy_until)
        allowed = {"calm": 0, "mild": MILD, "harsh": replicas}[name]
        free = [one for one in range(replicas) if busy_until[one] <= at]
        if ill < allowed and free:
            kind = rng.choices(kinds, weights)[0]
            length = rng.uniform(0.5, 5.0)
            replica = rng.choice(free)
            faults.append(Fault(at, kind, replica, length, _body(kind, length, rng)))
            # what is over may still be felt: restarts, streams that hang until they are given up
            busy_until[replica] = at + length + (3.0 if kind in ("kill", "freeze") else 0.5)
        at += rng.uniform(0.1, 0.7)
    return faults


def _body(kind: str, seconds: float, rng: random.Random) -> dict[str, Any]:
    """For the emulator's POST /admin/fault; empty for what is done to the process."""
    if kind in ("freeze", "kill"):
        return {}
    body: dict[str, Any] = {"kind": kind, "duration_s": seconds}
    if kind == "lie_health_inverted":
        body |= {"kind": "lie_health", "invert": True}
    elif kind == "slow":
        body["factor"] = rng.choice([3.0, 20.0, 200.0])
    elif kind == "error":
        body["status"] = rng.choice([429, 500, 502, 503])
    elif kind.endswith("_mid_stream"):
        body["after_chunks"] = rng.choice([0, 1, 5, 30])
    if kind in ("hang", "error", "reset_before_response", "die_mid_stream", "stall_mid_stream"):
        body["share"] = rng.choice([0.3, 1.0, 1.0])
    if kind in ("hang", "error", "reset_before_response"):
        body["scope"] = rng.choice(["requests", "all"])
    return body


class Chaos:
    """Carries out a plan; afterwards everybody is well."""

    def __init__(self, emulators: list[Emulator], faults: list[Fault]) -> None:
        self.illnesses: list[Illness] = []
        self.done: Counter[str] = Counter()
        self._emulators = emulators
        self._faults = faults
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        began = time.monotonic()
        try:
            for fault in self._faults:
                await asyncio.sleep(max(0.0, began + fault.at - time.monotonic()))
                for task in [task for task in self._tasks if task.done()]:
                    self._tasks.discard(task)
                    task.result()  # a fault that could not be made ends the run
                if all(ill.until < time.monotonic() for ill in self.illnesses if ill.replica == fault.replica):
                    self._tasks.add(asyncio.create_task(self._make(fault)))
        finally:
            await asyncio.gather(*self._tasks)

    async def _make(self, fault: Fault) -> None:
        emulator = self._emulators[fault.replica]
        illness = Illness(fault.replica, fault.kind, time.monotonic())
        self.illnesses.append(illness)
        self.done[fault.kind] += 1
        if fault.kind == "freeze":
            emulator.freeze()
            await asyncio.sleep(fault.seconds)
            emulator.thaw()
        elif fault.kind == "kill":
            emulator.kill()
            await asyncio.sleep(fault.seconds)
            await emulator.restart()
        else:
            await emulator.fault(**fault.body)
            await asyncio.sleep(fault.seconds)
            await emulator.ready()  # after "refuse" it has to get its port back
        illness.until = time.monotonic() + 0.5

    def ill(self, since: float, until: float) -> dict[str, set[str]]:
        """Replicas that were ill at some time between, and with what."""
        found: dict[str, set[str]] = {}
        for one in self.illnesses:
            if one.since <= until and one.until >= since:
                found.setdefault(str(one.replica), set()).add(one.kind)
        return found
