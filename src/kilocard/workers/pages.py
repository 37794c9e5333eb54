"""The supervisor's pages: one /metrics and one /state for all workers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import convert

from kilocard import __version__
from kilocard.core.reading import GatewayReading, together
from kilocard.gateway import limit_store
from kilocard.gateway.config_status import export
from kilocard.gateway.limit_state import LimitMeters, Standings, standings, tenants
from kilocard.gateway.state import UNKNOWN
from kilocard.metrics import names
from kilocard.metrics.merge import Page, Totals, merged, page
from kilocard.metrics.render import Registry
from kilocard.spec.model import ClusterSpec
from kilocard.workers.overview import combined

if TYPE_CHECKING:
    from kilocard.workers.hand import Hand
    from kilocard.workers.supervisor import Supervisor

_METRICS = {metric.name: metric for metric in names.ALL}


class Pages:
    """Implements gateway.admin.Overview. Workers are asked when somebody asks; one that does not answer within a second
    is shown as it was."""

    def __init__(self, supervisor: Supervisor, describe: Callable[[], dict[str, dict[str, Any]]]) -> None:
        self._supervisor = supervisor
        self._describe = describe
        self._started_at = time.monotonic()
        self._registry = Registry()
        self._scrape_failures = self._registry.counter(names.SCRAPE_FAILURES)
        self._exits = self._registry.counter(names.WORKER_EXITS)
        self.store_errors = self._registry.counter(names.STORE_ERRORS)
        export(supervisor.config, self._registry)
        LimitMeters(self._standings, self._registry)
        limit_store.export(supervisor.desk.store, self.store_errors, self._registry)
        self._workers = self._registry.gauge(names.WORKERS).only
        #: what workers counted that are no more
        self._totals = Totals()
        supervisor.roster.on_failed_scrape = lambda pool: self._scrape_failures.labels(pool).inc()

    @property
    def ready(self) -> bool:
        supervisor = self._supervisor
        return not supervisor.draining and any(hand.ready for hand in supervisor.hands)

    @property
    def spec(self) -> ClusterSpec:
        return self._supervisor.spec

    def _standings(self) -> Standings:
        supervisor = self._supervisor
        now, wall = time.monotonic(), time.time()  # noqa: TID251  # budgets go by the calendar
        return standings(supervisor.spec.tenants, supervisor.desk.store, now, wall)

    def cut(self, hand: Hand) -> None:
        """A worker is no more: what it counted stays."""
        self._totals.add(hand.page, _METRICS)
        hand.page = {}

    def died(self, cause: str) -> None:
        """And it was not told to end."""
        self._exits.labels(cause).inc()

    async def metrics(self) -> bytes:
        hands = self._supervisor.hands
        fresh = await asyncio.gather(*[hand.ask("metrics") for hand in hands])
        self._workers.set(sum(hand.state == "serving" for hand in hands))
        # in one step from here: a worker that dies now is in `hand.page` or in the totals, never in both
        pages: list[Page] = [self._totals.page, page(self._registry), *[hand.page for hand in hands]]
        return merged(names.ALL, pages, sum(answer is not None for answer in fresh)).render()

    async def state(self) -> dict[str, Any]:
        supervisor = self._supervisor
        answers = await asyncio.gather(*[hand.ask("state") for hand in supervisor.hands])
        out = combined([answer for answer in answers if answer is not None])
        out["gateway"] |= {
            "version": __version__,
            "ready": self.ready,
            "draining": supervisor.draining,
            "config": supervisor.config.view(),
            "uptime_s": round(time.monotonic() - self._started_at, 3),
            "limit_store": limit_store.view(supervisor.desk.store),
            "workers": [_worker(hand, answer) for hand, answer in zip(supervisor.hands, answers, strict=True)],
        }
        self._describe_replicas(out["replicas"])
        out["scaling"] = self.scaling()
        out["tenants"] = tenants(supervisor.spec.tenants, self._standings())
        return out

    def scaling(self) -> dict[str, Any] | None:
        return self._supervisor.told.scaling()

    async def signals(self) -> GatewayReading:
        """What the workers know together. One that does not answer is missing, and with it what it had counted."""
        answers = await asyncio.gather(*[hand.ask("signals") for hand in self._supervisor.hands])
        return together([convert(answer, GatewayReading) for answer in answers if answer is not None])

    def _describe_replicas(self, rows: list[dict[str, Any]]) -> None:
        described = self._describe()
        for row in rows:
            for key, value in described.pop(row["id"], {}).items():
                row.setdefault(key, value)
            error = self._supervisor.roster.scrape_error(row["id"])
            if error is not None:
                row["scrape_error"] = error
        rows += [UNKNOWN | row | {"id": replica} for replica, row in described.items()]


def _worker(hand: Hand, answer: dict[str, Any] | None) -> dict[str, Any]:
    mine = answer["gateway"] if answer is not None else {}
    return {
        "worker": hand.slot,
        "pid": hand.pid,
        "state": "crash_loop" if hand.state == "down" and hand.restarts.looping else hand.state,
        "connections": mine.get("connections"),
        "in_flight": mine.get("in_flight"),
        "held": mine.get("held"),
        "restarts": hand.restarts.total,
        "uptime_s": round(hand.uptime, 3),
    }
