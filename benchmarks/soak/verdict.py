"""Which ends of a request are legitimate, and what has to be at rest when all is over."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter

from benchmarks.soak.chaos import MILD, Chaos
from benchmarks.soak.cluster import ATTEMPTS, Emulator, GatewayProcess
from benchmarks.soak.crowds import Crowds
from benchmarks.soak.results import Accepted, End, Result, Results
from benchmarks.soak.watch import Watch, slope

assert MILD < ATTEMPTS

#: KiB a minute that count as flat: allocators breathe, leaks don't stop. A leak of one 1 KiB object for each request of
#: this load would be 5,000
FLAT = 256.0
#: retries in the budget that may be gone between two looks at it
LITTLE = 5.0
#: seconds of samples that a slope needs
FIT = 150.0


#: the gateway's words for "no room", and what a full replica does to a first token
NO_ROOM = {"hold_timeout", "hold_full", "first_token_timeout"}


def explain(result: Result, chaos: Chaos, crowds: Crowds, watch: Watch) -> str | None:
    """Why an end that is no answer is legitimate; None: it is not.

    A request that has sent no content goes on to another replica, up to three in all. So it may fail only where three
    replicas were ill in its time, the budget of retries was used up, a crowd took all room, or the machine stood still.
    """
    if result.end in (End.STUCK, End.WRONG):
        return None
    ill = chaos.ill(result.started, result.ended)
    if result.end is End.CUT:
        # Half of a file is out, and its replica died: only a cut tells. Streams get an error event instead.
        return "large answer, its replica fell ill" if result.what == "large answer" and ill else None
    if result.what.startswith("malformed"):
        return None
    if result.content:
        return "its replica fell ill in mid-stream" if ill else None
    if len(ill) >= ATTEMPTS:
        return "as many replicas ill as it has attempts"
    if result.code in NO_ROOM and crowds.felt(result.started, result.ended):
        return "a crowd took all room"
    if ill and watch.least_budget(result.started, result.ended) < LITTLE:
        return "no retries left in the budget"
    if watch.paused(result.started, result.ended):
        return "the machine stood still"
    return None


def judge_requests(results: Results, chaos: Chaos, crowds: Crowds, watch: Watch) -> tuple[Counter[str], list[str]]:
    """Legitimate failures by reason, and the others in full."""
    fine: Counter[str] = Counter()
    violations = []
    for result in results.suspects:
        why = explain(result, chaos, crowds, watch)
        if why is None:
            ill = chaos.ill(result.started, result.ended)
            violations.append(
                f"{result}; ill: {ill}; retries left: {watch.least_budget(result.started, result.ended):.0f}"
            )
        else:
            code = result.code or str(result.status) or result.end
            fine[f"{code}{' after content' if result.content else ''}: {why}"] += 1
    return fine, violations


def outcomes(page: str) -> Counter[str]:
    """kilocard_requests_total by outcome."""
    found: Counter[str] = Counter()
    for labels, value in re.findall(r"^kilocard_requests_total\{(.*?)\} (\S+)$", page, re.M):
        match = re.search(r'outcome="(.*?)"', labels)
        assert match is not None
        found[match.group(1)] += int(float(value))
    return found


def judge_counts(results: Results, counted: Counter[str]) -> list[str]:
    """Each request that the gateway took is counted once: not less than we are sure of, not more than we sent."""
    sure = results.accepted[Accepted.YES]
    most = sure + results.accepted[Accepted.UNSURE]
    total = sum(counted.values())
    violations = []
    if not sure <= total <= most:
        violations.append(f"kilocard_requests_total is {total}; {sure} to {most} requests were sent ({dict(counted)})")
    if counted["ok"] < results.ok_accepted:
        violations.append(f"{counted['ok']} ok are counted, {results.ok_accepted} were got")
    return violations


async def comes_to_rest(gateway: GatewayProcess, emulators: list[Emulator], files: int, within: float) -> list[str]:
    """Everything back at zero; what is not after `within` seconds is a leak."""
    deadline = time.monotonic() + within
    while True:
        left = await _not_at_rest(gateway, emulators, files)
        if not left or time.monotonic() > deadline:
            return left
        await asyncio.sleep(0.25)


async def _not_at_rest(gateway: GatewayProcess, emulators: list[Emulator], files: int) -> list[str]:
    state = await gateway.state()
    now = state["gateway"]
    left = [
        f"gateway: {name} is {now[name]}"
        for name in ("in_flight", "held", "buffered_bytes", "connections")
        if now[name]
    ]
    left += [f"{one['id']}: in_flight is {one['in_flight']}" for one in state["replicas"] if one["in_flight"]]
    # Half open: the next request is its trial, and there is none any more.
    left += [
        f"{one['id']}: state is {one['state']}"
        for one in state["replicas"]
        if one["state"] not in ("ready", "slow_start", "half_open")
    ]
    for emulator in emulators:
        stats = await emulator.stats()
        left += [
            f"emulator {emulator.number}: {name} is {stats[name]}"
            for name in ("in_flight", "running", "waiting")
            if stats[name]
        ]
    page = await gateway.metrics()
    for name in ("kilocard_open_connections", "kilocard_buffered_bytes"):
        match = re.search(rf"^{name} (\S+)$", page, re.M)
        if match is None or float(match.group(1)):
            left.append(f"{name} is {match and match.group(1)}")
    if gateway.files() > files:
        left.append(f"the gateway has {gateway.files()} files open, {files} before the load")
    return left


def judge_memory(watch: Watch, warm_up: float) -> tuple[float, float, list[str]]:
    """Growth in KiB a minute and the seconds that it was measured over."""
    start = watch.samples[0].at + warm_up
    points = [(sample.at, float(sample.memory_kib)) for sample in watch.samples if sample.at >= start]
    span = points[-1][0] - points[0][0] if points else 0.0
    growth = slope(points) * 60.0
    violations = []
    if span >= FIT and growth > FLAT:
        violations.append(f"memory grows by {growth:.0f} KiB a minute")
    return growth, span, violations
