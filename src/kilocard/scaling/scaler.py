"""One pool's number of replicas: a policy's proposal within the pool's bounds, with pauses between changes."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kilocard.core.signals import PoolSignals, ReplicaSignals
from kilocard.scaling.asked import Asked
from kilocard.scaling.decision import Reason, ScalingDecision
from kilocard.scaling.limits import Limits
from kilocard.scaling.proposal import Policy, Proposal
from kilocard.scaling.saved import number
from kilocard.scaling.schedules import bounds
from kilocard.scaling.target import Target
from kilocard.scaling.threshold import Threshold
from kilocard.scaling.view import View
from kilocard.spec.model import PoolSpec
from kilocard.spec.scaling import ScalingSpec

#: longer without a look, and a condition is not known to have held all the time
GAP_S = 15.0
#: pause before the other direction, where the cluster file does not say; `threshold` has its own times
COOLDOWN_S = {"target": 30.0, "threshold": 0.0}
#: `surge` replicas are added within so long at most
SURGE_S = 15.0
#: and so many at least, where the cluster file does not say
SURGE_LEAST = 4

#: additions that are remembered: there is one at a look
SURGES = 128

NO_LIMITS = Limits()


class Scaler:
    """`decide` once a second or so; what it decides is assumed to be done, and the next look shows how far it is.

    A pool without `scaling` has a fixed number: what it has is kept within `replicas.min` and `replicas.max`.
    """

    def __init__(self, pool: PoolSpec, *, scrape_s: float = 1.0, gpus_per_replica: int | None = None) -> None:
        """`gpus_per_replica`: what the engine needs, for the budget; None: what the cluster file says, else one."""
        self.pool = pool
        self._spec = pool.scaling or ScalingSpec()
        self._scrape_s = scrape_s
        cooldown = self._spec.cooldown
        self._cooldown = COOLDOWN_S[self._spec.policy] if cooldown is None else cooldown
        if gpus_per_replica is None:
            gpus_per_replica = pool.gpus.per_replica if pool.gpus is not None else 1
        #: most replicas that the budget pays for
        self._budget = None if self._spec.gpus is None else self._spec.gpus // max(1, gpus_per_replica)
        self._policy: Policy = Target(self._spec) if self._spec.policy == "target" else Threshold(self._spec)
        self._asked = Asked()
        self._looked: float | None = None
        #: when it grew and shrank last
        self._grew: float | None = None
        self._shrank: float | None = None
        #: (when, how many) of the latest additions
        self._surges: deque[tuple[float, int]] = deque(maxlen=SURGES)

    @property
    def zones(self) -> frozenset[str]:
        """Time zones that `Limits.local` has to tell the time of."""
        return frozenset(each.zone for each in self._spec.schedules.values())

    def decide(
        self,
        now: float,
        signals: PoolSignals | None,
        replicas: Sequence[ReplicaSignals],
        limits: Limits = NO_LIMITS,
    ) -> ScalingDecision:
        """`now`: seconds of a clock that never goes back. `replicas`: those of this pool that the backend lists."""
        if self._looked is not None and now - self._looked > GAP_S:
            self._policy.unseen()
        self._looked = now
        view = View.of(signals, replicas, self._scrape_s)
        self._asked.look(now, view.signals, view.ready)
        proposal = self._policy.propose(now, view)
        if self.pool.scaling is None:
            proposal = Proposal(view.have, Reason.STEADY, "the pool has no scaling")
        low, high, schedules = self._bounds(limits)
        decision = self._within(now, view, self._zero(now, view, proposal, low), low, high)
        decision = self._paused(now, view, decision, low, high)
        if view.pending and decision.wanted == decision.have and decision.reason is not Reason.BLIND:
            waits = f"{len(view.pending)} of {view.have} replicas wait for a GPU"
            decision = replace(decision, reason=Reason.NO_GPU, sentence=f"{waits}; {decision.sentence}")
        numbers: dict[str, Any] = {
            **decision.numbers, "ready": len(view.ready), "coming": len(view.coming), "pending": len(view.pending),
            "failing": len(view.failing), "draining": view.draining, "least": low, "most": high,
            "idle_s": round(self._asked.idle_s(now), 1), "schedules": ", ".join(schedules) or None,
        }  # fmt: skip
        decision = replace(decision, numbers=numbers)
        self._note(now, decision)
        return decision

    def _bounds(self, limits: Limits) -> tuple[int, int, list[str]]:
        """The budget and the quota are stronger than any minimum."""
        replicas = self.pool.replicas
        low, high, schedules = bounds(replicas.min, replicas.max, self._spec.schedules.values(), limits.local)
        high = min([high, *(each for each in (limits.replicas, self._budget) if each is not None)])
        return min(low, high), high, schedules

    def _zero(self, now: float, view: View, proposal: Proposal, low: int) -> Proposal:
        """From nothing to something and back: policies never propose either."""
        if self.pool.scaling is None:
            return proposal
        if not view.have:
            if self._asked.now:
                return Proposal(max(1, proposal.replicas), Reason.HELD, "requests come and there is no replica")
            return Proposal(0, Reason.STEADY, "there is no replica, and nobody asks", proposal.numbers)
        idle = self._asked.idle_s(now)
        if low == 0 and idle >= self._spec.idle and view.signals is not None:
            return Proposal(0, Reason.IDLE, f"nobody asked for {idle:.0f} s", proposal.numbers)
        return replace(proposal, replicas=max(1, proposal.replicas))

    def _within(self, now: float, view: View, proposal: Proposal, low: int, high: int) -> ScalingDecision:
        have, wanted, reason, sentence = view.have, proposal.replicas, proposal.reason, proposal.sentence
        if wanted < low:
            sentence = f"at least {low}; {sentence}"
            wanted, reason = low, Reason.AT_LEAST if have < low else reason
        elif wanted > high:
            sentence = f"at most {high}; {sentence}"
            wanted, reason = high, Reason.AT_MOST if have > high else Reason.LIMITED
        if wanted == have and reason in (Reason.BELOW, Reason.SURPLUS):
            reason = Reason.STEADY  # nothing is left to remove
        return ScalingDecision(now, self.pool.name, have, wanted, reason, sentence, proposal.numbers)

    def _paused(self, now: float, view: View, decision: ScalingDecision, low: int, high: int) -> ScalingDecision:
        """The pauses between changes. They never keep a pool outside its bounds, or at nothing while requests wait."""
        have, wanted = decision.have, decision.wanted
        cooldown = self._cooldown
        if wanted > have and have and low <= have:
            if self._shrank is not None and now - self._shrank < cooldown:
                return _still(decision, f"shrank {now - self._shrank:.0f} s ago, waits for {cooldown:g}")
            if self._spec.policy == "target":
                return self._surge(now, decision)
        elif wanted < have <= high:
            if self._grew is not None and now - self._grew < cooldown:
                return _still(decision, f"grew {now - self._grew:.0f} s ago, waits for {cooldown:g}")
            if self._spec.policy == "target" and decision.reason is Reason.SURPLUS:
                return self._slowly(now, decision)
        return decision

    def _surge(self, now: float, decision: ScalingDecision) -> ScalingDecision:
        while self._surges and self._surges[0][0] <= now - SURGE_S:
            self._surges.popleft()
        added = sum(count for _, count in self._surges)
        most = self._spec.surge
        if most is None:
            most = max(SURGE_LEAST, decision.have - added)
        wanted = min(decision.wanted, decision.have + max(0, most - added))
        if wanted == decision.wanted:
            return decision
        sentence = f"{decision.sentence}; at most {most} are added within {SURGE_S:.0f} s"
        return replace(decision, wanted=wanted, reason=decision.reason if wanted > decision.have else Reason.COOLING,
                       sentence=sentence)  # fmt: skip

    def _slowly(self, now: float, decision: ScalingDecision) -> ScalingDecision:
        """A quarter at a time: a mistake shows before all are gone."""
        if self._shrank is not None and now - self._shrank < self._cooldown:
            return _still(decision, f"shrank {now - self._shrank:.0f} s ago, waits for {self._cooldown:g}")
        return replace(decision, wanted=max(decision.wanted, decision.have - max(1, decision.have // 4)))

    def _note(self, now: float, decision: ScalingDecision) -> None:
        if decision.wanted != decision.have:
            self._policy.changed(now)
        if decision.wanted > decision.have:
            self._grew = now
            self._surges.append((now, decision.wanted - decision.have))
        elif decision.wanted < decision.have:
            self._shrank = now

    def snapshot(self, now: float) -> dict[str, Any]:
        """Timers and what was learned, as JSON data. Times are ages, so that another clock can go on with them."""
        return {
            "policy": {"kind": self._spec.policy, **self._policy.snapshot(now)},
            "grew_s": None if self._grew is None else round(now - self._grew, 3),
            "shrank_s": None if self._shrank is None else round(now - self._shrank, 3),
            "asked": self._asked.snapshot(now),
        }

    def restore(self, now: float, saved: Mapping[str, Any], away_s: float) -> None:
        """Go on with what another Scaler's `snapshot` said `away_s` seconds ago. What does not fit is passed over.

        Pauses go on. A condition that has to hold for some time goes on only after a short absence.
        """
        away_s = max(0.0, away_s)
        policy = saved.get("policy")
        if isinstance(policy, Mapping) and policy.get("kind") == self._spec.policy:
            self._policy.restore(now - away_s, policy)
            if away_s > GAP_S:
                self._policy.unseen()
        grew, shrank = number(saved.get("grew_s")), number(saved.get("shrank_s"))
        self._grew = None if grew is None else now - away_s - grew
        self._shrank = None if shrank is None else now - away_s - shrank
        asked = saved.get("asked")
        if isinstance(asked, Mapping):
            self._asked.restore(now - away_s, asked)

    def follow(self, now: float, other: Scaler) -> None:
        """Go on where `other` was, of the same pool with another cluster file. Where only bounds differ nothing is
        forgotten; of another policy's history only what a restart would keep is."""
        if (other._spec, other._scrape_s) == (self._spec, self._scrape_s):
            self._policy, self._asked = other._policy, other._asked
            self._grew, self._shrank, self._surges = other._grew, other._shrank, other._surges
        else:
            self.restore(now, other.snapshot(now), 0.0)
        self._looked = other._looked


def _still(decision: ScalingDecision, why: str) -> ScalingDecision:
    return replace(decision, wanted=decision.have, reason=Reason.COOLING, sentence=f"{why}; {decision.sentence}")
