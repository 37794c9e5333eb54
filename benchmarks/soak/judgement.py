"""All that is looked at when the run is over, in one place."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from math import inf

from benchmarks.soak import evidence
from benchmarks.soak.books import Row, judge_books, judge_pools, read_access_log, sums
from benchmarks.soak.bounds import Peak, judge_limits
from benchmarks.soak.cast import FLOOD, KEY_MARK
from benchmarks.soak.fairness import Waits, judge_waits, waits
from benchmarks.soak.files import DEATHS, FLUSH, Layout
from benchmarks.soak.locks import LOCKED
from benchmarks.soak.poison import judge_poison
from benchmarks.soak.reloads import InForce
from benchmarks.soak.results import Results
from benchmarks.soak.verdict import Excuses, Growth, judge_counts, judge_memory, judge_requests
from benchmarks.soak.wire import PROMPT_MARK
from benchmarks.soak.worker_kills import KILLED

#: seconds for which a crowd fills all replicas, at least
CROWDED = 3.0
#: seconds in which a killed worker may not yet have written what had ended: the ledger's pause, its write, ours. And
#: nothing that ended while the ledger was locked by another program
UNWRITTEN = FLUSH + 2.0
#: seconds after which the ledger is tried again, at the latest, and until all that waited is written
TRIED_AGAIN = 5.0 + UNWRITTEN
#: seconds by which times in the ledger and in the store of limits may differ where they are not of one process
APART = 0.5
#: whose class is the flood's or a higher one, on the same replicas
PEERS = ("free", "urgent", "heavy", "minute", "tokens", "narrow", "budget")


@dataclass
class Findings:
    results: Results
    excuses: Excuses
    #: by poison
    deaths: Counter[str]
    in_force: InForce
    #: keys that the run made
    keys: list[str]
    #: kilocard_requests_total by outcome
    counted: Counter[str]
    #: from this process's clock to Unix seconds
    utc: float
    #: what became of it
    fine: Counter[str] = field(default_factory=Counter)
    growths: list[Growth] = field(default_factory=list)
    peaks: dict[str, Peak] = field(default_factory=dict)
    waited: dict[str, Waits] = field(default_factory=dict)
    replays: list[str] = field(default_factory=list)
    rows: int = 0


async def judge(findings: Findings, layout: Layout, warm_up: float) -> list[str]:
    """All violations; fills in what became of it."""
    excuses = findings.excuses
    findings.fine, violations = judge_requests(findings.results, excuses)
    findings.growths, growing = judge_memory(excuses.watch, warm_up)
    violations += growing
    violations += judge_poison(findings.deaths, _most_deaths(layout))
    rows = evidence.ledger(layout.store)
    findings.rows = len(rows)
    violations += _judge_books(findings, layout, rows)
    violations += await _judge_sums(layout, rows)
    violations += _judge_limits(findings, layout, rows)
    violations += _judge_fairness(findings, layout, rows)
    violations += judge_pools(rows)
    findings.replays, differing = await evidence.replayed(layout)
    violations += differing
    violations += evidence.leaks(layout.folder, _forbidden(findings))
    return violations


def _most_deaths(layout: Layout) -> int:
    """Workers suspect on their own: a body that kills in mid-stream and is sent again may come to another one.

    What it did at the first looks like an outage there, which asks for one death more.
    """
    return DEATHS if layout.workers == 1 else (DEATHS - 1) * (layout.workers - 1) + DEATHS + 1


def _forbidden(findings: Findings) -> list[bytes]:
    return [KEY_MARK.encode(), PROMPT_MARK.encode(), *(key.encode() for key in findings.keys)]


def _judge_books(findings: Findings, layout: Layout, rows: list[Row]) -> list[str]:
    log, violations = read_access_log(evidence.lines(layout.access_log), _forbidden(findings))
    by_id = {row.request_id: row for row in rows}
    if len(by_id) < len(rows):
        violations.append(f"{len(rows) - len(by_id)} rows of the ledger are there twice")
    known = {line.request_id for lines in log.values() for line in lines}
    history, utc = findings.excuses.history, findings.utc
    kills = [at + utc for at in history.times(KILLED)]
    waiting_since = [history.began_at(LOCKED, at, TRIED_AGAIN) + utc - UNWRITTEN for at in history.times(KILLED)]
    if not kills and (strange := [id for id in by_id if id not in known]):
        violations.append(f"{len(strange)} rows of the ledger have no line in the access log, {strange[0]} for one")
    lost = 0

    def may_be_lost(ended: float) -> bool:
        nonlocal lost
        place = bisect_left(kills, ended - 0.5)
        near = place < len(kills) and waiting_since[place] <= ended
        lost += near
        return near

    sent = list(findings.results.sent())
    violations += judge_books(sent, log, by_id, may_be_lost)
    lost = sum(may_be_lost(one.ended) for one in sent)
    violations += judge_counts(findings.results, findings.counted, lost)
    return violations


async def _judge_sums(layout: Layout, rows: list[Row]) -> list[str]:
    """Daily totals, rows and the report say the same."""
    told, added = await evidence.reported(layout), sums(rows)
    return [
        f"kilocard usage says {told.get(tenant)} of {tenant}, its rows {added.get(tenant)}"
        for tenant in sorted(told.keys() | added.keys())
        if told.get(tenant) != added.get(tenant)
    ]


def _judge_limits(findings: Findings, layout: Layout, rows: list[Row]) -> list[str]:
    utc = findings.utc

    def limit(tenant: str, kind: str, at: float) -> int | None:
        return findings.in_force.limit(tenant, kind, at - utc)

    limited = [tenant.name for tenant in layout.tenants.values() if tenant.limits]
    one_process = layout.workers == 1 and layout.limit_store is None
    findings.peaks, violations = judge_limits(rows, limit, limited, 0.0 if one_process else APART)
    return violations


def _judge_fairness(findings: Findings, layout: Layout, rows: list[Row]) -> list[str]:
    crowds = [(at + findings.utc, at + findings.utc + CROWDED) for at in findings.excuses.crowds.times]
    findings.waited = waits(rows, crowds)
    peers = [layout.tenants[name] for name in PEERS]
    weights = {peer.name: inf if peer.priority == "high" else peer.weight for peer in peers}
    return list(judge_waits(rows, crowds, FLOOD, weights))
