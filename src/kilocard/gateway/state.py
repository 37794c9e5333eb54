"""GET /state and the per-replica gauges: the whole fleet as plain data, made when somebody asks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kilocard import __version__
from kilocard.gateway import limit_store
from kilocard.gateway.limit_state import standings, tenants
from kilocard.metrics import names
from kilocard.metrics.render import Registry

if TYPE_CHECKING:
    from kilocard.gateway.plane import Plane


def state(plane: Plane, now: float, describe: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The JSON of `kilocard status`. `describe` adds what a backend knows of replicas, ready or not, by id."""
    snapshot = plane.dispatcher.snapshot(now)
    specs = plane.spec.tenants
    replicas = []
    seen = set()
    for view in snapshot["replicas"]:
        replica = view["id"]
        target = plane.targets.get(replica)
        row = describe.get(replica, {}) | view | {"url": target.endpoint.url if target is not None else None}
        row["name"] = plane.names.of(replica)
        scrape = plane.scrape_status(replica)
        if scrape is not None and scrape.error is not None:
            row["scrape_error"] = scrape.error
        replicas.append(row)
        seen.add(replica)
    for replica, row in describe.items():
        if replica not in seen:
            replicas.append(UNKNOWN | row | {"id": replica})
    return {
        "gateway": {
            "version": __version__,
            "ready": plane.ready,
            "draining": plane.draining,
            "connections": len(plane.connections),
            "in_flight": len(plane.exchanges),
            "held": snapshot["held"],
            "buffered_bytes": plane.buffered,
            "uptime_s": round(now - plane.started_at, 3),
            "config": plane.config.view(),
            "limit_store": limit_store.view(plane.limiting.store),
        },
        "models": [{"id": model["name"], **model} for model in snapshot["models"]],
        "pools": [
            {
                "id": pool["name"],
                "engine": plane.spec.pools[pool["name"]].engine,
                "sleeps": not pool["replicas"] and plane.spec.pools[pool["name"]].sleeps,
                **pool,
            }
            for pool in snapshot["pools"]
        ],
        "replicas": replicas,
        "quarantine": snapshot["quarantine"],
        "tenants": tenants(specs, standings(specs, plane.limiting.store, now, plane.limiting.wall())),
    }


#: of a replica that only a backend knows
UNKNOWN: dict[str, Any] = {
    "url": None,
    "running": None,
    "waiting": None,
    "kv_usage": None,
    "in_flight": 0,
    "age_s": None,
    "reason": "",
}


class FleetMeters:
    """Gauges and counters that are cheaper to read when the page is asked for than to keep up to date."""

    def __init__(self, plane: Plane, registry: Registry) -> None:
        self._plane = plane
        self._replica = {
            "in_flight": registry.gauge(names.REPLICA_IN_FLIGHT),
            "running": registry.gauge(names.REPLICA_RUNNING),
            "waiting": registry.gauge(names.REPLICA_WAITING),
            "kv_usage": registry.gauge(names.REPLICA_KV_USAGE),
            "age_s": registry.gauge(names.REPLICA_SAMPLE_AGE),
        }
        self._states = registry.gauge(names.REPLICA_STATE)
        self._held = registry.gauge(names.HELD_REQUESTS)
        self._deaths = registry.counter(names.REPLICA_DEATHS)
        self._retries_denied = registry.counter(names.RETRIES_DENIED)
        self._hedges = registry.counter(names.HEDGES)
        self._quarantined = registry.gauge(names.QUARANTINED)
        self._decisions = registry.counter(names.DECISIONS)
        self._prefix_tokens = registry.counter(names.PREFIX_TOKENS)
        self._prefix_expected = registry.counter(names.PREFIX_EXPECTED)
        self._trust = registry.gauge(names.PREFIX_TRUST)
        self._received = registry.counter(names.RECEIVED).only
        self._under_way = registry.gauge(names.UNDER_WAY).only
        self._connections = registry.gauge(names.OPEN_CONNECTIONS).only
        self._buffered = registry.gauge(names.BUFFERED_BYTES).only
        self._scrape_failures = registry.counter(names.SCRAPE_FAILURES)
        registry.before_page.append(self.refresh)

    def refresh(self) -> None:
        plane = self._plane
        snapshot = plane.dispatcher.snapshot(plane.clock())
        for family in self._replica.values():
            family.children.clear()  # replicas that are gone leave no series behind
        self._states.children.clear()
        for view in snapshot["replicas"]:
            values: Mapping[str, Any] = view
            for field, family in self._replica.items():
                family.labels(view["pool"], view["id"]).set(values[field])
            self._states.labels(view["pool"], view["id"], view["state"]).set(1)
        for model in snapshot["models"]:
            self._retries_denied.labels(model["name"]).value = model["retries_denied"]
            for priority, held in model["held_by_priority"].items():
                self._held.labels(model["name"], priority).set(held)
            for pool, share in model["prefix_trust"].items():
                self._trust.labels(model["name"], pool).set(share)
        for reason, count in plane.dispatcher.stats.decisions.items():
            self._decisions.labels(reason).value = count
        for name, (tokens, expected) in plane.dispatcher.stats.prefixes.items():
            self._prefix_tokens.labels(name).value = tokens
            self._prefix_expected.labels(name).value = expected
        self._received.value = plane.received
        self._under_way.set(len(plane.exchanges))
        self._connections.set(len(plane.connections))
        self._buffered.set(plane.buffered)
        for pool, count in plane.dispatcher.stats.deaths.items():
            self._deaths.labels(pool).value = count
        for (name, result), count in plane.dispatcher.stats.hedges.items():
            self._hedges.labels(name, result).value = count
        refused = Counter(body["model"] for body in snapshot["quarantine"])
        for model in snapshot["models"]:
            self._quarantined.labels(model["name"]).set(refused[model["name"]])
        for pool, count in plane.scrape_failures.items():
            self._scrape_failures.labels(pool).value = count
