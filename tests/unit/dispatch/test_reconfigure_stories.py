"""The cluster file changes while requests run: what lives goes on, what is gone ends in good order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

import pytest
from fleet_story import Story
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_invariants import HOLD_MAX, World, file, fresh

from kilocard.dispatch import events as ev
from kilocard.dispatch.config import PoolFacts
from kilocard.dispatch.instructions import Drained, Hold, Instruction, Refuse, Send
from kilocard.dispatch.record import replay
from kilocard.spec.model import HoldSpec, ModelSpec


def change(
    story: Story, *models: ModelSpec, facts: Mapping[str, PoolFacts] | None = None, interval: float = 1.0
) -> Sequence[Instruction]:
    return story.tell(ev.Reconfigured(story.now, {m.name: m for m in models}, facts or {}, interval))


def test_the_same_file_again_changes_nothing() -> None:
    story = Story("a", "b")
    before = [story.send() for _ in range(4)]
    assert change(story, story.model) == []
    assert story.in_flight("a") == story.in_flight("b") == 2
    for send in before:
        story.finish(send.request)
    assert story.dispatcher.live == 0 and story.in_flight("a") == story.in_flight("b") == 0


@pytest.mark.parametrize("policy", ["round_robin", "least_connections", "adaptive"])
def test_another_policy_knows_the_replicas_and_their_load_at_once(policy: str) -> None:
    story = Story("a", "b")
    busy = [story.send() for _ in range(4)]
    story.finish(next(send.request for send in busy if send.replica == "b"))
    change(story, replace(story.model, policy=policy))
    send = story.send()
    assert policy in send.decision.reason
    if policy != "round_robin":
        assert send.replica == "b", "the less loaded one"


def test_replicas_of_a_removed_pool_drain_and_their_requests_end_as_if_nothing_was() -> None:
    story = Story("a", pools={"p": 1, "q": 1}, policy="least_connections")
    story.up("z", pool="q")
    sends = [story.send() for _ in range(8)]
    there = [send.request for send in sends if send.replica == "z"]
    change(story, replace(story.model, pools={"p": 1}))
    assert story.state("z") == "draining" and there
    assert {story.send().replica for _ in range(5)} == {"a"}
    last = [story.finish(request) for request in there][-1]
    assert last == [Drained("z")]


def test_an_idle_replica_of_a_removed_pool_is_drained_at_once() -> None:
    story = Story("a", pools={"p": 1, "q": 1})
    story.up("z", pool="q")
    assert change(story, replace(story.model, pools={"p": 1})) == [Drained("z")]


def test_a_pool_that_comes_back_before_it_has_drained_is_found_with_its_counts() -> None:
    story = Story("a")
    send = story.send()
    other = replace(story.model, pools={"q": 1})
    change(story, other)
    change(story, story.model)
    story.up("a")
    assert story.state("a") == "ready" and story.in_flight("a") == 1
    story.finish(send.request)
    assert story.in_flight("a") == 0


def test_a_request_on_a_removed_pool_fails_over_to_what_is_there_now() -> None:
    story = Story("a")
    send = story.send()
    change(story, replace(story.model, pools={"q": 1}))
    story.up("z", pool="q")
    (answer,) = [i for i in story.fail(send.request, ev.Fault.RESET) if not isinstance(i, Drained)]
    assert isinstance(answer, Send) and answer.replica == "z"


def test_held_requests_of_a_removed_model_are_refused_like_new_ones_and_running_ones_finish() -> None:
    story = Story("a", facts=PoolFacts(1, 1))
    runs, waits = story.send(), story.arrive()
    assert isinstance(waits, Hold)
    other = ModelSpec("other", {"p": 1})
    (refused,) = change(story, other, facts={"p": PoolFacts(1, 1)})
    assert isinstance(refused, Refuse) and refused.request == waits.request
    assert refused.error.code == "model_not_found" and "other" in str(refused.error)
    story.finish(runs.request)
    assert story.dispatcher.live == 0 and story.in_flight("a") == 0


@pytest.mark.parametrize("fault", [ev.Fault.CONNECT, ev.Fault.RESET])
def test_a_running_request_of_a_removed_model_gets_no_second_attempt(fault: ev.Fault) -> None:
    story = Story("a", "b")
    send = story.send()
    change(story, ModelSpec("other", {"p": 1}))
    (answer,) = story.fail(send.request, fault)
    assert isinstance(answer, Refuse) and answer.error.code == fault.value


def test_held_requests_take_new_room_at_once() -> None:
    story = Story("a", facts=PoolFacts(None, 1))
    story.send()
    waits = story.arrive()
    (sent,) = change(story, story.model, facts={"p": PoolFacts(None, 2)})
    assert isinstance(sent, Send) and sent.request == waits.request


def test_held_requests_go_to_a_pool_that_is_new_to_their_model() -> None:
    story = Story("a", facts=PoolFacts(None, 1))
    both = (story.model, ModelSpec("n", {"q": 1}))
    bounds = {"p": PoolFacts(None, 1)}
    change(story, *both, facts=bounds)
    story.up("z", pool="q")
    story.send()
    waits = story.arrive()
    (sent,) = change(story, replace(story.model, pools={"p": 1, "q": 1}), both[1], facts=bounds)
    assert isinstance(sent, Send) and (sent.request, sent.replica) == (waits.request, "z")


def test_a_lower_bound_holds_for_what_comes_and_leaves_what_runs() -> None:
    story = Story("a")
    sends = [story.send() for _ in range(5)]
    change(story, story.model, facts={"p": PoolFacts(None, 2)})
    assert isinstance(story.arrive(), Hold) and story.in_flight("a") == 5
    for send in sends:
        story.finish(send.request)
    assert story.in_flight("a") == 1


def test_a_shorter_queue_keeps_who_waits() -> None:
    story = Story("a", facts=PoolFacts(None, 1))
    story.send()
    story.arrive()
    story.arrive()
    assert change(story, replace(story.model, hold=HoldSpec(1, 60.0)), facts={"p": PoolFacts(None, 1)}) == []
    refused = story.arrive()
    assert isinstance(refused, Refuse) and refused.error.code == "hold_full"
    assert story.dispatcher.held == 2


def test_less_may_be_ejected_now_so_the_soonest_due_comes_back_to_trial() -> None:
    story = Story("a", "b", "c", "d")
    eject = replace(story.model.eject, max_share=0.5)
    for replica in ("a", "b"):
        request = next(s.request for s in iter(story.send, None) if s.replica == replica)
        story.fail(request, ev.Fault.CONNECT)
    assert [story.state(r) for r in "ab"] == ["ejected", "ejected"]
    change(story, replace(story.model, eject=replace(eject, max_share=0.25)))
    assert sorted(story.state(r) for r in "ab") != ["ejected", "ejected"]


class ChangingWorld(World):
    """The same stories; now and then the file is another one."""

    #: who waits may stay where a change of owners brings a model's queues together: there are three at most
    most_held = 3 * HOLD_MAX

    def layouts(self) -> list[tuple[dict[str, ModelSpec], dict[str, PoolFacts]]]:
        usual, pools = file(self.policy)
        m, n, o, closed = usual.values()
        everybodys = {name: facts._replace(tenants=()) for name, facts in pools.items()}
        others = pools | {"p": pools["p"]._replace(tenants=("a",)), "x": pools["x"]._replace(tenants=("partner",))}
        files = [
            [m, n, o, closed],
            [m, o],
            [m, n],
            [m],
            [n],
            [replace(m, pools={"p": 1}), n],
            [replace(m, pools={"q": 1}), replace(n, pools={"q": 5, "p": 1})],
            [replace(m, policy="round_robin"), replace(n, policy="adaptive", slow_start=0.0)],
            [replace(m, pools={"p": 0, "q": 0})],
        ]
        owners = [pools, pools, everybodys, others]
        return [({model.name: model for model in models}, self.rng.choice(owners)) for models in files]

    def step(self) -> None:
        if self.rng.random() < 0.08:
            models, pools = self.rng.choice(self.layouts())
            left = {pool for model in models.values() for pool in model.pools}
            fleet = self.dispatcher.fleet
            self.draining |= {id for id, replica in fleet.replicas.items() if replica.pool.name not in left}
            self.models, self.facts = models, pools
            self.tell(ev.Reconfigured(self.now, models, pools, 1.0))
            for request in self.held:
                live = self.dispatcher._requests[request]
                assert live.route in live.model.routes, "INV-14: who waits, waits for a way that is there"
                ways = {route.pool.name for route in live.model.routes}
                assert ways <= set(self.pools_of(live.asked.tenant, live.asked.model)), "INV-15"
        else:
            super().step()

    def check(self) -> None:
        super().check()
        for pool in self.dispatcher.fleet.pools.values():
            listed = sorted(id for id, replica in pool.replicas.items() if replica.listed)
            for policy in pool.policies:
                assert len(policy) == len(listed), "INV-14: policies know exactly who can take requests"
            assert len(pool.policies) == len(pool.models)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 2**32),
    policy=st.sampled_from(["queue_depth", "round_robin", "least_connections", "adaptive", "prefix_affinity"]),
)
def test_random_stories_with_changes_of_the_file_keep_every_invariant(seed: int, policy: str) -> None:
    world = ChangingWorld(Random(seed), policy)
    for name in ("p0", "p1", "q0"):
        world.tell(ev.ReplicaUp(0.0, name, name[0]))
    for _ in range(150):
        world.step()
    world.finish_all()


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_log_with_changes_of_the_file_replays_to_the_same_instructions(seed: int) -> None:
    """INV-13, INV-14."""
    world = ChangingWorld(Random(seed), "queue_depth")
    for _ in range(150):
        world.step()
    again = [list(answer) for _, answer in replay(fresh(7, "queue_depth"), world.log)]
    for mine, theirs in zip(world.answers, again, strict=True):
        assert [repr(i) for i in mine] == [repr(i) for i in theirs]
