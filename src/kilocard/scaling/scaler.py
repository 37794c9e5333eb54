"""One pool's number of replicas: a policy's proposal within the pool's bounds, with pauses between changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kilocard.core.signals import PoolSignals, ReplicaSignals
from kilocard.scaling.decision import Reason, ScalingDecision
from kilocard.scaling.limits import Limits
from kilocard.scaling.proposal import Policy, Proposal
from kilocard.scaling.threshold import Threshold
from kilocard.scaling.view import View
from kilocard.spec.model import PoolSpec, ScalingSpec

#: longer without a look, and a condition is not known to have held all the time
GAP_S = 15.0


class Scaler:
    """`decide` once a second or so; it assumes that what it decides is done (the next look shows it).

    A pool without `scaling` keeps its number within `replicas.min` and `replicas.max`.
    """

    def __init__(self, pool: PoolSpec, *, scrape_s: float = 1.0) -> None:
        self.pool = pool
        self._spec = pool.scaling
        self._scrape_s = scrape_s
        self._policy: Policy = Threshold(self._spec or ScalingSpec())
        self._looked: float | None = None

    @property
    def zones(self) -> frozenset[str]:
        """Time zones that `Limits.local` has to tell the time of."""
        return frozenset()

    def decide(
        self,
        now: float,
        signals: PoolSignals | None,
        replicas: Sequence[ReplicaSignals],
        limits: Limits = Limits(),  # noqa: B008  # frozen, so shared safely
    ) -> ScalingDecision:
        """`now`: seconds of a clock that never goes back. `replicas`: those of this pool that the backend lists."""
        if self._looked is not None and now - self._looked > GAP_S:
            self._policy.unseen()
        self._looked = now
        view = View.of(signals, replicas, self._scrape_s)
        proposal = self._policy.propose(now, view)
        if self._spec is None:
            proposal = Proposal(view.have, Reason.STEADY, "the pool has no scaling")
        decision = self._bounded(now, view, proposal, limits)
        if decision.wanted != decision.have:
            self._policy.changed(now)
        return decision

    def _bounded(self, now: float, view: View, proposal: Proposal, limits: Limits) -> ScalingDecision:
        lowest, highest = self.pool.replicas.min, self.pool.replicas.max
        if limits.replicas is not None:
            highest = min(highest, limits.replicas)
        wanted, reason, sentence = proposal.replicas, proposal.reason, proposal.sentence
        if wanted < lowest <= highest:
            wanted, reason = lowest, Reason.AT_LEAST if view.have < lowest else Reason.STEADY
            sentence = f"at least {lowest}; {sentence}"
        if wanted > highest:
            wanted, reason = highest, Reason.AT_MOST if view.have > highest else Reason.LIMITED
            sentence = f"at most {highest}; {sentence}"
        numbers = {
            **proposal.numbers, "ready": len(view.ready), "coming": len(view.coming), "pending": len(view.pending),
            "failing": len(view.failing), "draining": view.draining, "lowest": lowest, "highest": highest,
        }  # fmt: skip
        return ScalingDecision(now, self.pool.name, view.have, wanted, reason, sentence, numbers)

    def snapshot(self, now: float) -> dict[str, Any]:
        """Timers and what was learned, as JSON data; times are ages, so another clock can go on with it."""
        return {"policy": self._policy.snapshot(now)}

    def restore(self, now: float, saved: Mapping[str, Any], away_s: float) -> None:
        """Go on with what another Scaler's `snapshot` said `away_s` seconds ago. What does not fit is passed over."""
        policy = saved.get("policy")
        if isinstance(policy, Mapping) and away_s <= GAP_S:
            self._policy.restore(now - away_s, policy)
