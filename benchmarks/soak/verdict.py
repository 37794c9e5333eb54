"""Which ends of a request are legitimate, and what has to be true of all of them together."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.soak.cast import FRAGILE, OWNER, Tenant
from benchmarks.soak.chaos import MILD, Chaos
from benchmarks.soak.crowds import Crowds
from benchmarks.soak.files import ATTEMPTS, DEATHS
from benchmarks.soak.history import History
from benchmarks.soak.poison import DIED
from benchmarks.soak.results import Accepted, End, Result, Results
from benchmarks.soak.watch import Watch, slope
from benchmarks.soak.worker_kills import KILLED

assert MILD < ATTEMPTS

#: KiB a minute that count as flat: allocators breathe, leaks don't stop. A leak of one 1 KiB object for each request of
#: the plain run would be 5,000
FLAT = 256.0
#: KiB that stay in the allocator for each of the most connections at once, where the gateway is one process: 66 to
#: 1,907 connections in five minutes took 14,700
KEPT = 8.0
#: seconds of samples that a slope needs
FIT = 150.0
#: seconds in which a killed worker's connections are seen to be cut
CUT_WITHIN = 2.0

#: the gateway's words for "no room", and what a full replica does to a first token
NO_ROOM = {"hold_timeout", "hold_full", "first_token_timeout"}


@dataclass
class Excuses:
    """All that was done to the gateway."""

    chaos: Chaos
    crowds: Crowds
    history: History
    watch: Watch
    tenants: Mapping[str, Tenant]
    #: processes of the gateway
    workers: int = 1

    def ill(self, result: Result) -> dict[str, set[str]]:
        """Replicas of the request's own pools that were ill at some time of it, and with what."""
        if result.model == FRAGILE:
            dead = [span for span in self.history.spans if span.what == DIED]
            lived = [span for span in dead if span.since <= result.ended and span.until >= result.started]
            return {f"fragile {place}": {DIED} for place, _ in enumerate(lived)}
        if result.tenant == OWNER:
            return {}
        return self.chaos.ill(result.started, result.ended)


def explain(result: Result, excuses: Excuses) -> str | None:
    """Why an end that is no answer is legitimate; None: it is not.

    A request that has sent no content goes on to another replica, up to three in all. So it may fail only where three
    replicas were ill in its time, the budget of retries was used up, a crowd took all room from a tenant that yields to
    it, or the machine stood still.
    """
    if result.end in (End.STUCK, End.WRONG):
        return None
    if result.end is End.CUT and excuses.history.began(KILLED, result.ended - CUT_WITHIN, result.ended):
        return "its worker was killed"
    ill = excuses.ill(result)
    if result.end is End.CUT:
        # Half of a file is out, and its replica died: only a cut tells. Streams get an error event instead.
        return "large answer, its replica fell ill" if result.what == "large answer" and ill else None
    if result.what.startswith("malformed"):
        return None
    if result.what == "poison":
        return "it killed its replica" if ill else None
    if result.content:
        return "its replica fell ill in mid-stream" if ill else None
    if result.code == "poison_request":
        return _taken_for_poison(result, ill, excuses.workers)
    if len(ill) >= ATTEMPTS:
        return "as many replicas ill as it has attempts"
    if result.code in NO_ROOM and excuses.tenants[result.tenant].yields and excuses.crowds.felt(
        result.started, result.ended
    ):  # fmt: skip
        return "a crowd took all room"
    if ill and excuses.watch.denied(result.started, result.ended):
        return "no retries left in the budget"
    if excuses.watch.paused(result.started, result.ended):
        return "the machine stood still"
    return None


def _taken_for_poison(result: Result, ill: Mapping[str, set[str]], workers: int) -> str | None:
    """Nothing that this run sends to the replicas that suffer kills: three deaths with it on them were chance. Where
    one process sees poison and innocents die together it tells them apart; workers suspect on their own."""
    if result.model != FRAGILE:
        return "three replicas died with it on them" if len(ill) >= ATTEMPTS else None
    return "another worker's poison killed two replicas with it on them" if workers > 1 and len(ill) >= DEATHS else None


def judge_requests(results: Results, excuses: Excuses) -> tuple[Counter[str], list[str]]:
    """Legitimate failures by reason, and the others in full."""
    fine: Counter[str] = Counter()
    violations = []
    for result in results.suspects:
        why = explain(result, excuses)
        if why is None:
            denied = excuses.watch.denied(result.started, result.ended)
            violations.append(f"{result}; ill: {excuses.ill(result)}; retries denied: {denied}")
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


def judge_counts(results: Results, counted: Counter[str], lost: int) -> list[str]:
    """Each request that the gateway took is counted once: not less than we are sure of, not more than we sent.

    `lost`: requests whose worker may have been killed before it told anybody.
    """
    sure = results.accepted[Accepted.YES]
    most = sure + results.accepted[Accepted.UNSURE]
    total = sum(counted.values())
    violations = []
    if not sure - lost <= total <= most:
        violations.append(f"kilocard_requests_total is {total}; {sure} to {most} requests were sent ({dict(counted)})")
    if counted["ok"] < results.ok_accepted - lost:
        violations.append(f"{counted['ok']} ok are counted, {results.ok_accepted} were got")
    return violations


@dataclass(frozen=True)
class Growth:
    """Of one process. `rate`: KiB a minute over the last `span` seconds of its life."""

    pid: int
    rate: float
    span: float


def judge_memory(watch: Watch, warm_up: float) -> tuple[list[Growth], list[str]]:
    """`warm_up`: seconds of each process's life that are left out. A new peak of connections explains some growth."""
    points: dict[int, list[tuple[float, float]]] = {}
    most = 0
    for sample in watch.samples:
        most = max(most, sample.connections)
        explained = KEPT * most if len(sample.memory_kib) == 1 else 0.0
        for pid, kib in sample.memory_kib.items():
            points.setdefault(pid, []).append((sample.at, kib - explained))
    growths = []
    for pid, life in points.items():
        settled = [point for point in life if point[0] >= life[0][0] + warm_up]
        if settled:
            growths.append(Growth(pid, slope(settled) * 60.0, settled[-1][0] - settled[0][0]))
    violations = [
        f"memory of process {one.pid} grows by {one.rate:.0f} KiB a minute"
        for one in growths
        if one.span >= FIT and one.rate > FLAT
    ]
    return growths, violations
