"""What no sequence of signals can make a Scaler do."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from kilocard.core.signals import Phase, PoolSignals, ReplicaSignals
from kilocard.scaling.decision import Reason
from kilocard.scaling.leaving import leaving
from kilocard.scaling.limits import Limits
from kilocard.scaling.peak import Peak
from kilocard.scaling.scaler import GAP_S, Scaler
from kilocard.spec.model import PoolSpec, ReplicaRange
from kilocard.spec.scaling import ScaleStep, ScalingSpec

#: a look: seconds since the last one, requests that came, requests that wait, age of the gauges, quota
LOOK = st.tuples(
    st.sampled_from([1.0, 1.0, 1.0, 2.0, 40.0]),
    st.integers(0, 200),
    st.sampled_from([0.0, 0.0, 3.0, 25.0, 400.0]),
    st.sampled_from([0.2, 0.2, 0.2, 9.0, None]),
    st.sampled_from([None, None, None, 0, 2, 5]),
)
PHASES = st.sampled_from([Phase.READY] * 5 + [Phase.PENDING, Phase.LOADING, Phase.FAILING])
COOLDOWN = 4.0
SPEC = ScalingSpec(up=ScaleStep(20, 3, 2), down=ScaleStep(5, 5, 2), cooldown=COOLDOWN, idle=20.0, capacity=2.0)


class Told:
    """Plays looks to a Scaler, doing what it decides."""

    def __init__(self, policy: str, low: int, high: int) -> None:
        spec = replace(SPEC, policy=policy)
        self.scaler = Scaler(PoolSpec("p", "vllm", replicas=ReplicaRange(low, high), scaling=spec))
        self.low, self.high = low, high
        self.now = self.arrived = 0.0
        self.replicas: list[ReplicaSignals] = []
        self.born = 0
        self.grew = self.shrank = float("-inf")

    def look(self, look: tuple[float, int, float, float | None, int | None], phase: Phase) -> None:
        pause, came, waits, age, quota = look
        self.now += pause
        self.arrived += came
        shown = [
            replace(
                each,
                running=1.0,
                waiting=waits / max(1, len(self.replicas)),
                age_s=age if each.phase is Phase.READY else None,
            )
            for each in self.replicas
        ]
        signals = None
        if age is not None:
            signals = PoolSignals(
                "p", sources=("g",), arrived=self.arrived, prompt_tokens=900 * self.arrived, finished=self.arrived,
                output_tokens=90 * self.arrived, held=waits, age_s=age,
            )  # fmt: skip
        decision = self.scaler.decide(self.now, signals, shown, Limits(replicas=quota))
        self.check(decision.have, decision.wanted, decision.reason, age, quota, pause)
        assert decision.sentence
        for _ in range(decision.wanted - decision.have):
            self.replicas.append(ReplicaSignals(f"p-{self.born}", "p", phase, since_s=100.0))
            self.born += 1
        gone = {each.replica for each in leaving(shown, decision.have - decision.wanted)}
        assert len(gone) == max(0, decision.have - decision.wanted)
        self.replicas = [each for each in self.replicas if each.id not in gone]
        assert len(self.replicas) == decision.wanted

    def check(self, have: int, wanted: int, reason: Reason, age: float | None, quota: int | None, pause: float) -> None:
        most = self.high if quota is None else min(self.high, quota)
        assert wanted <= max(0, most)
        assert wanted >= min(self.low, most)
        if wanted < have and have <= most:
            assert age is not None, "down without anybody's word"
            assert age < 3.1, "down by old gauges"
            assert pause <= GAP_S, "down at the first look after a gap"
            assert self.now - self.grew >= COOLDOWN
            self.shrank = self.now
        elif wanted > have:
            if have >= min(self.low, most) and have:
                assert self.now - self.shrank >= COOLDOWN
            self.grew = self.now


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["threshold", "target"]),
    st.integers(0, 3),
    st.integers(3, 9),
    st.lists(st.tuples(LOOK, PHASES), max_size=80),
)
def test_never_out_of_bounds_never_down_unseen_never_to_and_fro(
    policy: str, low: int, high: int, looks: list[tuple[tuple[float, int, float, float | None, int | None], Phase]]
) -> None:
    told = Told(policy, low, high)
    for look, phase in looks:
        told.look(look, phase)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(LOOK, PHASES), max_size=60), st.integers(0, 59), st.sampled_from(["threshold", "target"]))
def test_a_restart_in_between_breaks_no_rule(
    looks: list[tuple[tuple[float, int, float, float | None, int | None], Phase]], at: int, policy: str
) -> None:
    told = Told(policy, 1, 6)
    for number, (look, phase) in enumerate(looks):
        if number == at:
            saved = told.scaler.snapshot(told.now)
            told.scaler = Scaler(told.scaler.pool)
            told.scaler.restore(told.now, saved, 0.0)
        told.look(look, phase)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 20), st.integers(0, 9)), min_size=1, max_size=60), st.floats(1, 60))
def test_a_peak_is_the_highest_of_the_window(steps: list[tuple[float, int]], window: float) -> None:
    peak, now, all = Peak(), 0.0, []
    for pause, value in steps:
        now += pause
        all.append((now, value))
        peak.add(now, value)
        assert peak.over(window, now) == max(value for at, value in all if at >= now - window)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 40), st.integers(1, 12), st.floats(0, 60), st.floats(0, 60))
def test_more_waiting_never_means_fewer(seconds: int, replicas: int, less: float, more: float) -> None:
    """Monotone: two Scalers, one of which sees more waiting at every look, never wants fewer."""
    less, more = sorted((less, more))

    def wanted(waits: float) -> int:
        scaler = Scaler(PoolSpec("p", "vllm", replicas=ReplicaRange(1, 20), scaling=SPEC))
        shown = [
            ReplicaSignals(f"p-{n}", "p", Phase.READY, running=1.0, waiting=waits, age_s=0.1) for n in range(replicas)
        ]
        found = [
            scaler.decide(float(now), PoolSignals("p", sources=("g",)), shown).wanted for now in range(seconds + 1)
        ]
        return found[-1]

    assert wanted(less) <= wanted(more) or seconds > 5  # after a change its own clock begins anew
