"""As many replicas as hold the objective, now and when one that is started now would serve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil, sqrt
from typing import Any

from kilocard.core.signals import BOUNDS_S
from kilocard.scaling.burstiness import Burstiness
from kilocard.scaling.cold_starts import ColdStarts
from kilocard.scaling.decision import Reason
from kilocard.scaling.peak import Peak
from kilocard.scaling.proposal import Proposal
from kilocard.scaling.readings import Readings
from kilocard.scaling.speed import Speed
from kilocard.scaling.staffing import VARIABILITY, VARIABILITY_MOST, replicas_for
from kilocard.scaling.threshold import Threshold
from kilocard.scaling.view import View
from kilocard.scaling.work import coming, mean_work
from kilocard.spec.scaling import ScalingSpec

#: a need has to last so long before replicas are added: one crowded second is no burst
SURE_S = 4.0
#: rates are not known exactly, so replicas are planned for so much more; and for a little more before one is removed
MARGIN, KEEP = 1.1, 1.05
#: requests that wait are to be served within so long, or half a cold start if that is longer
DRAIN_S = 60.0
#: cold starts for which a peak is remembered: what was needed once is likely needed again before it could be replaced
PEAKS = 2.0
#: a trend is looked for in three stretches of so many seconds (half a cold start), and adds at most this share
TREND_S, TREND_MOST = (60.0, 300.0), 1.0
#: standard deviations that a rise has to have to be one
SIGNIFICANT = 2.0
#: longest history that anything here looks at
KEEP_S = 1300.0


@dataclass(frozen=True, slots=True)
class Need:
    """What the pool is up against. Work in tokens of prompts."""

    #: work a second: what comes now, what will at the end of a cold start, what one replica does
    now: float
    ahead: float
    each: float
    #: seconds of one replica's time that a request takes, that waits now, and that will wait after a cold start
    service_s: float
    waiting_s: float
    backlog_s: float
    cold_start_s: float
    #: replicas: for what comes now, for what will, to work off what waits, and all with the margin for removing one
    base: int
    later: int
    drain: int
    keep: int

    @classmethod
    def nothing(cls, cold_start_s: float) -> Need:
        """Nobody has come yet: one replica is enough, whatever it can do."""
        return cls(0.0, 0.0, 1.0, 0.0, 0.0, 0.0, cold_start_s, 1, 1, 0, 1)

    @property
    def replicas(self) -> int:
        """In all."""
        return max(self.base, self.later) + self.drain


class Target:
    """Steady demand and backlog are apart: what waits is worked off once, and is no reason to stay big.

    Until a replica's speed is known (`capacity`, or some seconds in which all of them were full) it is `threshold`;
    downwards only where there is less than one request for each replica that is left.
    """

    def __init__(self, spec: ScalingSpec) -> None:
        self._spec = spec
        self._readings = Readings(KEEP_S)
        self._speed = Speed()
        self._cold = ColdStarts()
        self._burstiness = Burstiness()
        self._peak = Peak()
        #: least need of the last SURE_S, as the peak of its negative
        self._sure = Peak()
        #: requests there are, of the last minutes
        self._busy = Peak()
        self._known_since: float | None = None
        #: of a request, as far as anybody ever came
        self._work: float | None = None
        self._fallback = Threshold(spec)

    def propose(self, now: float, view: View) -> Proposal:
        self._cold.look(now, (*view.ready, *view.coming, *view.pending))
        signals = view.signals
        if signals is None:
            self._known_since = None
            return Proposal(view.have, Reason.BLIND, "no gateway tells of this pool: nothing is changed")
        self._readings.add(now, signals)
        self._burstiness.look(now, signals.arrived)
        self._speed.look(now, view, self._readings)
        fallback = self._fallback.propose(now, view)
        if self._speed.rate is None and self._spec.capacity is None:
            self._known_since = None
            return self._unknown(now, view, fallback)
        need = self._need(now, view)
        if need is None:
            self._known_since = None
            if fallback.reason is Reason.ABOVE:
                return fallback
            return Proposal(view.have, Reason.STEADY, "what comes is not known yet", self._numbers(view))
        if self._known_since is None:
            self._known_since = now
        return self._proposal(now, view, need)

    def _unknown(self, now: float, view: View, fallback: Proposal) -> Proposal:
        """As `threshold`, but one that runs something is not removed to find out what the others can do."""
        signals = view.signals
        assert signals is not None
        there = sum((each.running or 0.0) + (each.waiting or 0.0) for each in view.ready)
        self._busy.add(now, signals.held + max(signals.in_flight, there))
        most = self._busy.over(self._spec.down.for_seconds, now) or 0.0
        sentence = f"what a replica can do is not known yet; {fallback.sentence}"
        if fallback.reason is Reason.BELOW and (
            most > fallback.replicas or not view.believed(lambda each: each.running)
        ):
            fallback = replace(fallback, replicas=view.have, reason=Reason.STEADY)
            sentence += f", but up to {most:.0f} are with the replicas"
        return replace(fallback, sentence=sentence, numbers={**self._numbers(view), **fallback.numbers})

    def _proposal(self, now: float, view: View, need: Need) -> Proposal:
        spec = self._spec
        remember = max(spec.down.for_seconds, PEAKS * need.cold_start_s)
        self._peak.add(now, need.keep)
        self._sure.add(now, -need.replicas)
        keep = int(self._peak.over(remember, now) or 0)
        sure = int(-(self._sure.over(SURE_S, now) or 0))
        failing = min(len(view.failing), ceil(need.replicas / 4))
        numbers = self._numbers(view, need) | {"peak": keep, "remember_s": round(remember, 1)}
        what = (
            f"{need.now / need.each:.2g} replicas' work comes now, {need.ahead / need.each:.2g} in "
            f"{need.cold_start_s:.0f} s"
        )
        waits = f", {need.waiting_s:.0f} s of work waits" if need.waiting_s >= 1 else ""
        if sure > view.serving:
            reason = Reason.BACKLOG if need.drain and max(need.base, need.later) <= view.serving else Reason.DEMAND
            return Proposal(sure + failing, reason, f"{what}{waits}: {sure} hold the objective", numbers)
        if need.replicas > view.serving:
            return Proposal(
                view.have, Reason.WAITING, f"{what}{waits}: for a moment {need.replicas} are needed", numbers
            )
        if keep >= view.serving:
            return Proposal(view.have, Reason.STEADY, f"{what}{waits}: {keep} hold the objective", numbers)
        if not view.believed(lambda each: each.running):
            return Proposal(
                view.have, Reason.BLIND, f"{what}: replicas do not say what they run, none is removed", numbers
            )
        assert self._known_since is not None
        if now - self._known_since < remember:
            seen = now - self._known_since
            return Proposal(view.have, Reason.WAITING, f"{what}: seen for {seen:.0f} of {remember:.0f} s", numbers)
        return Proposal(
            keep + failing, Reason.SURPLUS, f"{what}: {keep} held the objective for {remember:.0f} s", numbers
        )

    def _need(self, now: float, view: View) -> Need | None:
        readings, spec = self._readings, self._spec
        change, signals = coming(readings), view.signals
        if change is None or signals is None:
            return None
        # nobody came for minutes: those who do will be like those before
        self._work = work = mean_work(readings) or self._work
        waiting = signals.held + sum(replica.waiting or 0.0 for replica in view.ready)
        if work is None:
            return None if change.arrived or waiting else Need.nothing(self._cold.seconds)
        each = self._speed.rate or (spec.capacity or 0.0) * work
        answers = max(0.0, work - change.prompt_tokens / change.arrived) if change.arrived else 0.0
        rate = (change.prompt_tokens + answers * change.arrived) / change.seconds
        cold = self._cold.seconds
        ahead = rate * (1.0 + self._trend(cold))
        starting = [self._cold.left(now, replica) for replica in (*view.coming, *view.pending)]
        able = each * (len(view.ready) * cold + sum(max(0.0, cold - left) for left in starting))
        waits = work * waiting
        left = max(0.0, waits + 0.5 * (rate + ahead) * cold - able)
        service = work / each
        within = max(0.1 * spec.slo.ttft, spec.slo.ttft - service)

        variability = min(VARIABILITY_MOST, max(VARIABILITY, self._burstiness.ratio))

        def staffed(rate: float) -> int:
            return replicas_for(rate / each, service, within, spec.slo.share, variability)

        base, later = staffed(rate * MARGIN), staffed(ahead * MARGIN)
        # what is spare of the others works off what waits
        drain = max(0, ceil((ahead + left / max(DRAIN_S, cold / 2)) / each - 0.05) - max(base, later))
        return Need(
            rate, ahead, each, service, waits / each, left / each, cold, base, later, drain,
            max(staffed(max(rate, ahead) * MARGIN * KEEP), max(base, later) + drain),
        )  # fmt: skip

    def _trend(self, cold: float) -> float:
        """By what share more will come at the end of a cold start, as the last minutes tell; 0 where it falls.

        A step is no trend: it has to rise from the first third to the second, and from that to the last.
        """
        third = min(max(cold / 2, TREND_S[0]), TREND_S[1])
        late, mid, early = (self._readings.over(third, back * third) for back in range(3))
        if late is None or mid is None or early is None or not late.arrived:
            return 0.0
        rise = min(late.arrived - mid.arrived, mid.arrived - early.arrived)
        if rise < SIGNIFICANT * sqrt(late.arrived + mid.arrived):
            return 0.0
        return min(TREND_MOST, rise / late.arrived * cold / third)

    def _numbers(self, view: View, need: Need | None = None) -> dict[str, float | int | str | None]:
        signals = view.signals
        numbers: dict[str, float | int | str | None] = {
            "held": signals.held if signals is not None else None,
            "within_objective": self._within(),
            "work_per_replica_s": None if self._speed.rate is None else round(self._speed.rate, 1),
            "cold_start_s": round(self._cold.seconds, 1),
            "burstiness": round(self._burstiness.ratio, 2),
        }
        if need is not None:
            numbers |= {
                "work_now_s": round(need.now, 1),
                "work_ahead_s": round(need.ahead, 1),
                "service_s": round(need.service_s, 4),
                "waiting_s": round(need.waiting_s, 2),
                "backlog_s": round(need.backlog_s, 2),
                "need_now": need.base,
                "need_ahead": need.later,
                "need_drain": need.drain,
            }
        return numbers

    def _within(self) -> float | None:
        """Share of the last minute's first tokens that came within the objective, by whole buckets."""
        change = self._readings.over(60.0)
        if change is None or not (total := sum(change.first_token) + change.refused):
            return None
        ttft = self._spec.slo.ttft
        good = sum(count for bound, count in zip(BOUNDS_S, change.first_token, strict=False) if bound <= ttft)
        return round(good / total, 4)

    def changed(self, now: float) -> None:
        self._fallback.changed(now)

    def unseen(self) -> None:
        self._known_since = None
        self._fallback.unseen()

    def snapshot(self, now: float) -> dict[str, Any]:
        return {
            "speed": self._speed.snapshot(),
            "cold_starts": self._cold.snapshot(),
            "peak": self._peak.snapshot(now),
            "known_for_s": None if self._known_since is None else round(now - self._known_since, 3),
        }

    def restore(self, now: float, saved: Mapping[str, Any]) -> None:
        self._speed.restore(saved)
        self._cold.restore(saved)
        self._peak.restore(now, saved.get("peak"))
