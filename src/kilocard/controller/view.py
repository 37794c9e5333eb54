"""GET /scaling: what the controller wants, why, and what it did; as plain data. Ages in seconds, newest first."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kilocard.scaling.decision import ScalingDecision

if TYPE_CHECKING:
    from kilocard.controller.controller import Controller
    from kilocard.controller.keeper import Keeper

#: decisions of each pool, and events, that are shown
MOST = 50


def view(controller: Controller) -> dict[str, Any]:
    """O(pools × MOST)."""
    now = controller.clock()
    leader = controller.leader
    return {
        "controller": {
            "leads": bool(controller.leads),
            "leader": None if leader is None else asdict(leader),
            "looks": controller.looks,
            "looked_ago_s": None if controller.looked_at is None else round(now - controller.looked_at, 3),
            "errors": dict(controller.events.errors),
            "problems": list(controller.source.problems),
        },
        "pools": [_pool(controller, keeper, now) for _, keeper in sorted(controller.keepers.items())],
        "drains": [
            {"replica": replica, "pool": drain.pool, "reason": drain.reason, "since_s": _wall(controller, drain.since)}
            for replica, drain in sorted(controller.departures.under_way.items())
        ],
        "events": [
            {
                "ago_s": round(now - event.last, 1), "kind": event.kind.value, "pool": event.pool,
                "replica": event.replica, "text": event.text, "count": event.count,
            }
            for event in list(controller.events)[: -MOST - 1 : -1]
        ],
    }  # fmt: skip


def _pool(controller: Controller, keeper: Keeper, now: float) -> dict[str, Any]:
    decision = keeper.decision
    wanted = None if decision is None else decision.wanted
    row: dict[str, Any] = {
        "pool": keeper.pool.name,
        "min": keeper.pool.replicas.min,
        "max": keeper.pool.replicas.max,
        "wanted": wanted,
        "replicas": {phase.value: count for phase, count in keeper.phases.items()},
        "pending": [
            {"since_s": round(now - each.since, 1), "reason": each.reason, "tries": each.tries}
            for each in keeper.pending.values()
        ],
        "started": controller.moves[keeper.pool.name, "up"],
        "drained": controller.moves[keeper.pool.name, "down"],
        "journal": [_entry(since, entry, now) for since, entry in list(keeper.journal)[: -MOST - 1 : -1]],
    }
    return row | {"reason": None, "sentence": ""} if decision is None else row | _why(decision)


def _why(decision: ScalingDecision) -> dict[str, Any]:
    return {"reason": decision.reason.value, "sentence": decision.sentence, "numbers": dict(decision.numbers)}


def _entry(since: float, decision: ScalingDecision, now: float) -> dict[str, Any]:
    """`since_s`: when it was first decided like this, `ago_s`: when last."""
    return {
        "since_s": round(now - since, 1), "ago_s": round(now - decision.at, 1), "have": decision.have,
        "wanted": decision.wanted, **_why(decision),
    }  # fmt: skip


def _wall(controller: Controller, since: float) -> float:
    return round(max(0.0, controller.wall() - since), 1)
