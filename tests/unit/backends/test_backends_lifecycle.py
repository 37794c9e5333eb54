"""One replica's life on virtual time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilocard.backends.backoff import STABLE_SECONDS
from kilocard.backends.base import ReplicaState as S
from kilocard.backends.base import StartPhases
from kilocard.backends.life_events import (
    AnnounceFound,
    AnnounceLeaving,
    AnnounceLost,
    Begin,
    Drain,
    Event,
    Exited,
    Health,
    Hint,
    Idle,
    Instruction,
    Kill,
    Probed,
    Spawn,
    Spawned,
    SpawnFailed,
    Stop,
    Terminate,
    Tick,
)
from kilocard.backends.lifecycle import STOP_SECONDS, UNREADY_ANSWERS, Life
from kilocard.spec.model import StartSpec

START = StartSpec(timeout=100.0, crash_loop=3, backoff=1.0, backoff_max=30.0)


class Replica:
    """A life with a clock: `at(5, Exited, "boom")` is told at second 5."""

    def __init__(self, start: StartSpec = START) -> None:
        self.life = Life(start, drain_grace=20.0, now=0.0)
        self.now = 0.0

    def at(self, now: float, event: Any, *rest: Any) -> list[Instruction]:
        self.now = now
        return list(self.life.on(event(now, *rest)))

    def started(self) -> Replica:
        assert self.at(0.0, Begin) == [Spawn()]
        assert self.at(0.0, Spawned) == []
        return self

    def ready(self, now: float = 10.0) -> Replica:
        assert self.at(now, Probed, Health.READY) == [AnnounceFound()]
        return self


def test_the_usual_way_up_with_its_phases() -> None:
    replica = Replica().started()
    assert replica.life.state is S.STARTING
    assert replica.at(1, Probed, Health.NO_ANSWER, "refused") == []
    assert replica.life.state is S.STARTING
    replica.at(3, Hint, "loading weights")
    assert (replica.life.state, replica.life.since) == (S.LOADING, 3)
    replica.at(4, Probed, Health.NOT_READY, "/health answers 503")
    assert replica.life.reason == "/health answers 503; log: loading weights"
    replica.ready(10)
    assert (replica.life.state, replica.life.reason) == (S.READY, "")
    assert replica.life.phases == StartPhases(starting=3, loading=7)
    assert replica.life.phases.total == 10
    assert replica.life.deadline is None


def test_an_exit_is_told_and_tried_again_after_a_growing_back_off() -> None:
    replica = Replica(StartSpec(crash_loop=9, backoff=1.0, backoff_max=5.0)).started()
    now, waits = 0.0, []
    for _ in range(5):
        assert replica.at(now, Exited, "boom") == []  # never announced: nobody has to hear of its end
        assert replica.life.state is S.RESTARTING
        assert replica.life.deadline is not None
        waits.append(replica.life.deadline - now)
        assert replica.at(replica.life.deadline - 0.01, Tick) == []
        now = replica.life.deadline
        assert replica.at(now, Tick) == [Spawn()]
        assert "boom" in replica.life.reason, "why it is started again stays visible"
        replica.at(now, Spawned)
    assert waits == [1, 2, 4, 5, 5]
    assert replica.life.restarts == 5


def test_an_announced_replica_that_exits_is_lost() -> None:
    replica = Replica().started().ready()
    assert replica.at(20, Exited, "killed by SIGKILL") == [AnnounceLost("killed by SIGKILL")]
    assert replica.life.state is S.RESTARTING


def test_quick_failures_become_a_crash_loop_with_slow_retries() -> None:
    replica = Replica().started()
    for now in (0.0, 10.0):
        replica.at(now, Exited, "bad flag")
        replica.at(now + 9, Tick)
        replica.at(now + 9, Spawned)
    replica.at(20, Exited, "bad flag")
    assert replica.life.state is S.CRASH_LOOP
    assert replica.life.reason == "crash loop, 3 quick failures: bad flag"
    assert replica.life.deadline == 20 + START.backoff_max
    assert replica.at(50, Tick) == [Spawn()]
    replica.at(50, Spawned)
    assert "crash loop, 3 quick failures: bad flag" in replica.life.reason
    replica.at(51, Exited, "bad flag")
    assert replica.life.reason == "crash loop, 4 quick failures: bad flag"


def test_a_replica_that_served_for_long_starts_the_count_anew() -> None:
    replica = Replica().started()
    for now in (0.0, 10.0):
        replica.at(now, Exited, "boom")
        replica.at(now + 9, Tick)
        replica.at(now + 9, Spawned)
    replica.ready(20)
    replica.at(20 + STABLE_SECONDS, Exited, "boom")
    assert (replica.life.state, replica.life.deadline) == (S.RESTARTING, 20 + STABLE_SECONDS + START.backoff)


def test_exits_soon_after_ready_are_quick_failures_too() -> None:
    replica = Replica().started()
    now = 0.0
    for _ in range(START.crash_loop):
        replica.at(now + 1, Probed, Health.READY)
        replica.at(now + 5, Exited, "illegal instruction in the first request")
        assert replica.life.deadline is not None
        now = replica.life.deadline
        replica.at(now, Tick)
        replica.at(now, Spawned)
    assert "crash loop" in replica.life.reason


def test_a_program_that_cannot_be_started_counts_as_well() -> None:
    replica = Replica()
    replica.at(0, Begin)
    assert replica.at(0, SpawnFailed, "no such file") == []
    assert (replica.life.state, replica.life.reason) == (S.RESTARTING, "no such file")


def test_not_ready_in_time_ends_the_process_first_gently() -> None:
    replica = Replica().started()
    replica.at(5, Probed, Health.NOT_READY, "/health answers 503")
    assert replica.at(99.9, Tick) == []
    assert replica.at(100, Tick) == [Terminate()]
    assert replica.at(100 + STOP_SECONDS, Tick) == [Kill()]
    replica.at(111, Exited, "killed by SIGKILL (out of memory?)")
    assert replica.life.reason == "not ready after 100 s (start.timeout); last news: /health answers 503"
    assert replica.life.state is S.RESTARTING


def test_ready_comes_too_late_once_it_was_given_up() -> None:
    replica = Replica().started()
    assert replica.at(100, Tick) == [Terminate()]
    assert replica.at(101, Probed, Health.READY) == []


def test_a_slow_health_answer_changes_nothing_but_the_reason() -> None:
    """Killing a busy replica because its health page is slow makes a full queue an outage."""
    replica = Replica().started().ready()
    for second in range(20, 5000, 5):
        assert replica.at(second, Probed, Health.SLOW, "no answer from /health within 5 s") == []
        assert replica.at(second, Tick) == []
    assert replica.life.state is S.READY
    assert replica.life.reason.startswith("busy: ")
    replica.at(5000, Probed, Health.READY)
    assert replica.life.reason == ""


def test_an_explicit_not_ready_leaves_the_routing_after_a_few_answers_and_may_come_back() -> None:
    replica = Replica().started().ready()
    for second in range(1, UNREADY_ANSWERS):
        assert replica.at(20 + second, Probed, Health.NOT_READY, "503") == []
        assert replica.life.state is S.READY
    assert replica.at(30, Probed, Health.NOT_READY, "503") == [
        AnnounceLeaving("it says that it can't serve: 503"),
    ]
    assert replica.life.state is S.LOADING
    assert replica.at(40, Probed, Health.READY) == [AnnounceFound()]


def test_one_hiccup_is_forgotten() -> None:
    replica = Replica().started().ready()
    for second in range(20, 60, 2):
        assert replica.at(second, Probed, Health.NO_ANSWER, "refused") == []
        assert replica.at(second + 1, Probed, Health.READY) == []
    assert replica.life.state is S.READY


def lost_readiness() -> Replica:
    replica = Replica().started().ready()
    for second in range(UNREADY_ANSWERS):
        replica.at(20 + second, Probed, Health.NOT_READY, "503")
    return replica


def test_readiness_lost_for_the_whole_start_timeout_is_a_failure() -> None:
    replica = lost_readiness()
    replica.at(122, Tick)
    replica.at(123, Exited, "x")
    assert replica.life.reason == "not ready again after 100 s (start.timeout); last news: 503"


def test_but_not_while_it_is_only_slow() -> None:
    replica = lost_readiness()
    for second in range(30, 1000, 50):
        assert replica.at(second, Probed, Health.SLOW, "slow") == []
        assert replica.at(second, Tick) == []


def test_drain_then_idle_then_stop() -> None:
    replica = Replica().started().ready()
    assert replica.at(20, Drain, "new version") == [AnnounceLeaving("new version")]
    assert replica.life.state is S.DRAINING
    assert replica.at(21, Drain, "again") == []
    assert replica.at(25, Idle) == [Terminate()]
    assert replica.life.state is S.STOPPING
    assert replica.at(26, Exited, "exited with code 0") == [AnnounceLost("new version")]
    assert replica.life.state is S.STOPPED
    assert replica.at(1000, Tick) == []


def test_drain_ends_with_the_grace_and_the_stop_with_a_kill() -> None:
    replica = Replica().started().ready()
    replica.at(20, Drain, "new version")
    assert replica.at(39.9, Tick) == []
    assert replica.at(40, Tick) == [Terminate()]
    assert replica.life.reason == "new version; not idle after 20 s"
    assert replica.at(40 + STOP_SECONDS, Tick) == [Kill()]


def test_a_replica_that_never_served_is_drained_at_once() -> None:
    replica = Replica().started()
    assert replica.at(5, Drain, "scaled down") == [Terminate()]


def test_a_replica_that_left_the_routing_still_finishes_its_requests() -> None:
    replica = lost_readiness()
    assert replica.at(30, Drain, "scaled down") == []
    assert replica.life.state is S.DRAINING
    assert replica.at(31, Idle) == [Terminate()]


def test_unless_they_are_known_to_have_ended() -> None:
    replica = lost_readiness()
    replica.at(29, Idle)
    assert replica.at(30, Drain, "scaled down") == [Terminate()]


@pytest.mark.parametrize("event", [Drain, Stop])
def test_a_crash_loop_stops_at_once(event: Any) -> None:
    replica = Replica(StartSpec(crash_loop=1)).started()
    replica.at(0, Exited, "boom")
    assert replica.life.state is S.CRASH_LOOP
    assert replica.at(1, event, "scaled down") == []
    assert replica.life.state is S.STOPPED


def test_stop_while_the_process_is_being_made() -> None:
    replica = Replica()
    replica.at(0, Begin)
    assert replica.at(1, Stop, "enough") == []
    assert replica.at(1 + STOP_SECONDS, Tick) == [], "there is nothing to kill yet"
    assert replica.at(20, Spawned) == [Terminate()]
    assert replica.at(19.9 + STOP_SECONDS, Tick) == []
    assert replica.at(20 + STOP_SECONDS, Tick) == [Kill()]


def test_it_dies_while_it_drains() -> None:
    replica = Replica().started().ready()
    replica.at(20, Drain, "new version")
    assert replica.at(21, Exited, "killed by SIGSEGV") == [
        AnnounceLost("new version; while draining: killed by SIGSEGV")
    ]
    assert replica.life.state is S.STOPPED


# ---- whatever happens

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["ready", "not_ready", "no_answer", "slow", "hint", "exit", "drain", "idle", "stop", "wait"]),
        st.floats(0, 50),
    ),
    max_size=40,
)


class World:
    """The other side: makes processes, ends them when told to, and checks every instruction."""

    def __init__(self) -> None:
        self.life = Life(START, drain_grace=20.0, now=0.0)
        self.now = 0.0
        self.alive = False
        self.known = ""  # what the gateway thinks: "", found, leaving
        self.asked_to_stop = False
        self.terminations = 0
        self.tell(Begin(0.0))

    def tell(self, event: Event) -> None:
        for instruction in self.life.on(event):
            match instruction:
                case Spawn():
                    assert not self.alive, "two processes for one replica"
                    assert not self.asked_to_stop, "started again after it was asked to stop"
                    self.alive = True
                    self.tell(Spawned(self.now))
                case AnnounceFound():
                    assert self.alive
                    assert self.known != "found"
                    self.known = "found"
                case AnnounceLeaving(reason):
                    assert self.known == "found"
                    assert reason
                    self.known = "leaving"
                case AnnounceLost(reason):
                    assert self.known in ("found", "leaving")
                    assert not self.alive, "lost while its process runs"
                    assert reason
                    self.known = ""
                case Terminate():
                    assert self.alive
                    self.terminations += 1
                case Kill():
                    assert self.alive
                    assert self.terminations, "killed without having been asked"
                    self.exit("killed")

    def exit(self, reason: str) -> None:
        if self.alive:
            self.alive = False
            self.tell(Exited(self.now, reason))

    def wait(self, seconds: float) -> None:
        end = self.now + seconds
        while self.life.deadline is not None and self.life.deadline <= end:
            self.now = max(self.now, self.life.deadline)
            self.tell(Tick(self.now))
        self.now = end

    def step(self, what: str) -> None:
        match what:
            case "ready" | "not_ready" | "no_answer" | "slow":
                if self.alive:
                    self.tell(Probed(self.now, Health[what.upper()], what))
            case "hint":
                self.tell(Hint(self.now, "loading"))
            case "exit":
                self.exit("it exited")
            case "drain":
                self.asked_to_stop = True
                self.tell(Drain(self.now, "drained"))
            case "idle":
                self.tell(Idle(self.now))
            case "stop":
                self.asked_to_stop = True
                self.tell(Stop(self.now, "stopped"))


@settings(max_examples=200)
@given(STEPS)
def test_any_story_keeps_the_rules_and_can_be_ended(steps: list[tuple[str, float]]) -> None:
    world = World()
    for what, seconds in steps:
        world.wait(seconds)
        world.step(what)
        assert (world.known == "found") == (world.life.state is S.READY)
        if world.life.state in (S.RESTARTING, S.CRASH_LOOP, S.DRAINING, S.STOPPING, S.STARTING, S.LOADING):
            assert world.life.deadline is not None or world.life.state in (S.STARTING, S.LOADING, S.STOPPING)
    world.step("stop")
    world.wait(STOP_SECONDS)
    assert world.life.state is S.STOPPED
    assert not world.alive
    assert world.known == ""


@settings(max_examples=50)
@given(st.lists(st.tuples(st.sampled_from(["ready", "slow"]), st.floats(0, 500)), max_size=40))
def test_slow_answers_never_end_a_replica_that_was_ready(steps: list[tuple[str, float]]) -> None:
    world = World()
    world.step("ready")
    for what, seconds in steps:
        world.wait(seconds)
        world.step(what)
    assert world.terminations == 0
    assert world.life.state is S.READY
