"""docs/invariants.md, checked after every event of random stories. Each INV number is in a failure's message."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kilocard.core.load import LoadSample
from kilocard.core.prefix import of_blocks
from kilocard.dispatch import events as ev
from kilocard.dispatch.config import PoolFacts
from kilocard.dispatch.dispatcher import Dispatcher
from kilocard.dispatch.health import OUT, State, may_be_out
from kilocard.dispatch.instructions import Convicted, Drained, Hedge, Hold, Instruction, Probe, Refuse, Send
from kilocard.dispatch.record import replay, to_list
from kilocard.spec.model import EjectSpec, HedgeSpec, HoldSpec, ModelSpec, OverheatSpec

HOLD_MAX = 6
MAX_IN_FLIGHT = 3


def file(policy: str) -> tuple[dict[str, ModelSpec], dict[str, PoolFacts]]:
    quick = EjectSpec(consecutive=2, backoff=0.5, backoff_max=2.0)
    models = {
        "m": ModelSpec(
            "m",
            {"p": 3, "q": 1},
            policy,
            OverheatSpec(2),
            quick,
            HoldSpec(HOLD_MAX, 3.0),
            hedge=HedgeSpec(0.2, 1.0, 1.0),
        ),
        "n": ModelSpec("n", {"q": 1, "never": 0}, policy, OverheatSpec(waiting=2), quick, HoldSpec(HOLD_MAX, 3.0)),
        "o": ModelSpec("o", {"q": 2, "x": 1, "y": 1}, policy, OverheatSpec(2), quick, HoldSpec(HOLD_MAX, 3.0)),
        "closed": ModelSpec("closed", {"x": 1}, policy, OverheatSpec(waiting=2), quick, HoldSpec(HOLD_MAX, 3.0)),
    }
    pools = {
        "p": PoolFacts(2, MAX_IN_FLIGHT),
        "q": PoolFacts(None, MAX_IN_FLIGHT),
        "never": PoolFacts(),
        "x": PoolFacts(2, MAX_IN_FLIGHT, tenants=("owner", "partner")),
        "y": PoolFacts(2, MAX_IN_FLIGHT, tenants=("owner",)),
    }
    return models, pools


def fresh(seed: int, policy: str) -> Dispatcher:
    return Dispatcher(*file(policy), Random(seed))


TENANTS = ("", "a", "owner", "partner")


class World:
    """An honest but unlucky driver: it sends only events that can happen, in any order, and believes nobody."""

    most_held = HOLD_MAX

    def __init__(self, rng: Random, policy: str) -> None:
        self.rng = rng
        self.policy = policy
        self.models, self.facts = file(policy)
        self.dispatcher = fresh(7, policy)
        self.now = 0.0
        self.next_id = 0
        self.sent: dict[int, tuple[str, int, bool]] = {}  # request: (replica, attempt, content seen)
        #: second attempts that run beside those
        self.seconds: dict[int, tuple[str, int, bool]] = {}
        self.held: set[int] = set()
        self.asked: dict[int, ev.Arrived] = {}
        self.ended: dict[int, str] = {}
        self.draining: set[str] = set()
        self.probing: set[str] = set()
        self.log: list[list[object]] = []
        self.answers: list[list[Instruction]] = []

    def tell(self, event: ev.Event) -> None:
        states = {id: r.health.state for id, r in self.dispatcher.fleet.replicas.items()}
        self.log.append(json.loads(json.dumps(to_list(event))))
        held = set(self.held)
        answer = self.dispatcher.handle(event)
        self.answers.append(list(answer))
        self.check_order([i.request for i in answer if isinstance(i, Send) and i.attempt == 1 and i.request in held])
        for instruction in answer:
            self.obey(instruction, states)
        self.check()

    def obey(self, instruction: Instruction, before: dict[str, State]) -> None:
        match instruction:
            case Send(request, attempt, replica, pool, decision):
                assert request not in self.ended, "INV-2: sent after its end"
                assert request not in self.sent, "INV-2: sent twice at once"
                assert decision.reason and decision.target == replica, "INV-8: a decision has a reason"
                assert pool != "never", "INV-9: weight 0 gets nothing"
                asked = self.asked[request]
                assert pool in self.pools_of(asked.tenant, asked.model), "INV-15: never in a pool of somebody else"
                assert self.now < asked.deadline, "INV-16: not after its deadline"
                life = self.dispatcher.fleet.replicas.get(replica)
                assert life is not None, "INV-3: sent to a replica that is gone"
                assert replica not in self.draining, "INV-3: sent to a draining replica"
                assert life.health.state not in OUT | {State.RESTING}, "INV-3: sent to an ejected replica"
                self.held.discard(request)
                self.sent[request] = (replica, attempt, False)
            case Hedge(request, attempt, replica, pool, decision):
                assert decision.reason and decision.target == replica, "INV-8: a decision has a reason"
                first, before_it, content = self.sent[request]
                assert request not in self.seconds, "INV-20: two attempts at once at most"
                assert not content and replica != first and attempt > before_it, "INV-20"
                assert pool == first[0], "INV-20: in the pool that it is in"
                assert replica not in self.draining, "INV-3"
                assert self.dispatcher.fleet.replicas[replica].health.state is State.READY, "INV-3"
                self.seconds[request] = (replica, attempt, False)
            case Hold(request, reason):
                assert reason, "INV-8"
                assert request not in self.sent and request not in self.ended, "INV-2"
                self.held.add(request)
            case Refuse(request, error):
                assert request not in self.ended, "INV-2: ended twice"
                assert str(error) and error.http_status in {403, 404, 422, 502, 503, 504}
                asked = self.asked[request]
                if error.http_status == 403:
                    assert not self.pools_of(asked.tenant, asked.model), "INV-15: what belongs to others is forbidden"
                assert error.http_status != 503 or error.retry_after, "INV-10: 503 has Retry-After"
                self.end(request, "refused")
            case Convicted(replicas=dead):
                assert len(dead) >= 2, "INV-21: two deaths convict, not one"
            case Probe(replica, True):
                assert replica in self.dispatcher.quarantine.incidents
            case Probe(replica):
                assert before[replica] is State.EJECTED
                self.probing.add(replica)
            case Drained(replica):
                assert self.dispatcher.fleet.replicas[replica].in_flight == 0

    def end(self, request: int, how: str) -> None:
        self.sent.pop(request, None)
        self.seconds.pop(request, None)
        self.held.discard(request)
        self.ended[request] = how

    def pools_of(self, tenant: str, name: str) -> list[str]:
        """The pools that a tenant may use for a model: its own, else those of nobody."""
        if name not in self.models:
            return []
        own = [pool for pool in self.models[name].pools if tenant in self.facts[pool].tenants]
        return own or [pool for pool in self.models[name].pools if not self.facts[pool].tenants]

    def check_order(self, released: list[int]) -> None:
        """Of those that left the queue for the first time."""
        live = self.dispatcher._requests
        released = [id for id in released if live[id].mark is None]  # suspects of the quarantine stand aside
        for id in released:
            lines = live[id].model.hold.lines[: self.asked[id].priority]
            assert not any(line.count for line in lines), "INV-17: a higher class waits still"
        for earlier, later in pairwise(released):
            if live[earlier].model is live[later].model:
                assert self.asked[earlier].priority <= self.asked[later].priority, "INV-17: strict priority"

    def check_spread(self) -> None:
        """INV-27, from the queues themselves."""
        fleet = self.dispatcher.fleet
        there = 0
        for model in fleet.queues:
            beside = {other for route in model.routes for other in route.pool.models}
            for place, line in enumerate(model.hold.lines):
                weight = 0.0
                for flow in line._tenants.flows():
                    queues = sum(other.hold.lines[place].length(flow.name) > 0 for other in beside) if flow.name else 1
                    assert flow.queues == queues, "INV-27: a weight is divided among the queues where its tenant waits"
                    weight += flow.given / queues
                    if flow.name and (len(beside) > 1 or len(model.routes) > 1):
                        there += len(model.routes)
                assert abs(line.weight - weight) < 1e-9, "INV-27"
        known = sum(len(queues) for pool in fleet.pools.values() for place in pool.waits for queues in place.values())
        assert known == there, "INV-27: and nobody is remembered that waits no more"

    def check(self) -> None:
        fleet = self.dispatcher.fleet
        leases: dict[str, int] = {}
        for request in self.dispatcher._requests.values():
            if request.replica is not None and not request.replica.gone:
                leases[request.replica.id] = leases.get(request.replica.id, 0) + 1
            if request.hedge is not None and not request.hedge.replica.gone:
                leases[request.hedge.replica.id] = leases.get(request.hedge.replica.id, 0) + 1
        assert {id for id, one in self.dispatcher._requests.items() if one.hedge is not None} == set(self.seconds), (
            "INV-20: the second lease is there as long as the second attempt"
        )
        for id, replica in fleet.replicas.items():
            assert replica.in_flight == leases.get(id, 0), "INV-1: in flight = live leases"
            assert 0 <= replica.pending <= replica.in_flight, "INV-1"
            assert min(replica.prefill, replica.decode, replica.context) >= 0, "INV-1: never negative"
            assert 0.0 <= replica.waiting <= replica.load, "INV-7: waiting is part of load"
            assert replica.load >= replica.in_flight, "INV-7: own requests are the lower bound"
            assert replica.in_flight <= MAX_IN_FLIGHT, "INV-6: max_in_flight"
        for pool in fleet.pools.values():
            members = [r for r in pool.replicas.values() if not r.draining]
            out = [r for r in members if r.health.state in OUT]
            assert pool.members == len(members) and pool.ejected == len(out), "INV-4: counts are true"
            assert pool.out == sum(r.health.state is not State.READY for r in members), "INV-4"
            assert len(out) <= may_be_out(len(members), 0.5), "INV-4: the floor of ejection"
            assert not members or len(out) < len(members), "INV-4: never all ejected"
        waiting = [request for request in self.dispatcher._requests.values() if request.replica is None]
        for model in fleet.queues:
            assert len(model.hold) <= self.most_held, "INV-5: held is bounded"
            if waiting:
                mine = Counter(request.asked.tenant for request in waiting if request.model is model)
                assert model.hold.by_tenant() == mine, "INV-5: each held request waits in the queue of its own model"
        self.check_spread()
        assert self.dispatcher.held == len(self.held), "INV-5"
        assert self.dispatcher.live == len(self.held) + len(self.sent), "INV-2: nothing is forgotten"
        stats = self.dispatcher.stats
        ended = sum(stats.ends.values()) + sum(stats.refusals.values())
        assert len(self.asked) == ended + self.dispatcher.live, "INV-24: who arrived has ended or is there"
        assert len(self.dispatcher._room._deadlines) <= 2 * HOLD_MAX * len(fleet.queues) + 66, (
            "INV-11: memory is bounded"
        )

    # --- what can happen

    def step(self) -> None:
        rng = self.rng
        self.now += rng.choice([0.0, 0.01, 0.1, 0.4])
        names = [f"{pool}{i}" for pool in "pqxy" for i in range(3)]
        known = list(self.dispatcher.fleet.replicas)
        choice = rng.random()
        if choice < 0.30:
            self.next_id += 1
            model = rng.choice(["m", "m", "n", "o", "o", "closed", "unknown"])
            deadline = self.now + rng.choice([0.5, 5.0, 100.0])
            prompt, output = rng.randrange(4000), rng.randrange(500)
            who = (rng.choice(TENANTS), rng.randrange(3), rng.choice([1.0, 2.0]))
            prefix = None
            if self.policy == "prefix_affinity" and rng.random() < 0.8:
                prefix = of_blocks(prompt, [*range(2), *[rng.randrange(3)] * (prompt // 256)], 256)
            mark = rng.choice(["", "3-1"])
            asked = ev.Arrived(self.now, self.next_id, model, prompt, output, deadline, *who, mark, prefix=prefix)
            self.asked[self.next_id] = asked
            self.tell(asked)
            if model in self.models and not self.pools_of(asked.tenant, model):
                (refusal,) = self.answers[-1]
                assert isinstance(refusal, Refuse) and refusal.error.http_status == 403, "INV-15"
            assert self.next_id in self.sent or self.next_id in self.held or self.next_id in self.ended, "INV-2"
        elif choice < 0.62 and self.sent:
            self.progress(rng.choice(list(self.sent)))
        elif choice < 0.66 and (self.sent or self.held):
            request = rng.choice([*self.sent, *sorted(self.held)])
            self.end(request, "abandoned")
            self.tell(ev.Abandoned(self.now, request))
        elif choice < 0.72:
            name = rng.choice(names)
            if name not in known:
                self.probing.discard(name)
            if name[0] in self.dispatcher.fleet.pools:
                self.draining.discard(name)
            self.tell(ev.ReplicaUp(self.now, name, name[0]))
        elif choice < 0.75 and known:
            name = rng.choice(known)
            self.draining.add(name)
            self.tell(ev.ReplicaDraining(self.now, name))
        elif choice < 0.78 and known:
            name = rng.choice(known)
            self.draining.discard(name)
            self.probing.discard(name)
            self.tell(ev.ReplicaGone(self.now, name))
        elif choice < 0.86 and known:
            gauge = lambda: rng.choice([None, 0.0, 1.0, 3.0, 9.0])  # noqa: E731
            sample = LoadSample(self.now, gauge(), gauge(), rng.choice([None, 0.5, 0.99]), kv_tokens=9000.0)
            self.tell(ev.Scraped(self.now, rng.choice(known), rng.choice([None, sample, sample])))
        elif choice < 0.90 and self.probing:
            name = rng.choice(sorted(self.probing))
            self.probing.discard(name)
            self.tell(ev.Probed(self.now, name, rng.random() < 0.7))
        elif choice < 0.93:
            late = rng.choice([ev.Answered(self.now, -1, 200), ev.Finished(self.now, -1, 200, 1)])
            self.tell(rng.choice([late, ev.FirstContent(self.now, -1), ev.Abandoned(self.now, -1)]))
        else:
            self.tell(ev.Tick(self.now))

    def progress(self, request: int) -> None:
        rng = self.rng
        replica, attempt, content = self.sent[request]
        roll = rng.random()
        second = self.seconds.get(request)
        body = f"3-{rng.randrange(6)}"
        if second is not None and roll < 0.3:
            self.sent[request] = self.seconds.pop(request)
            self.tell(ev.HedgeWon(self.now, request))
        elif second is not None and roll < 0.5:
            del self.seconds[request]
            fault = rng.choice(list(ev.Fault))
            self.tell(ev.HedgeFailed(self.now, request, fault, 500, "it broke", rng.choice(["", body])))
            assert self.sent[request] == (replica, attempt, content), "INV-20: nothing changes for the first attempt"
        elif roll < 0.35 and not content:
            self.seconds.pop(request, None)
            self.sent[request] = (replica, attempt, True)
            self.tell(ev.FirstContent(self.now, request))
        elif roll < 0.7:
            self.end(request, "finished")
            self.tell(ev.Finished(self.now, request, rng.choice([200, 400]), rng.choice([None, 30])))
        else:
            fault = rng.choice(list(ev.Fault))
            del self.sent[request]
            life = self.dispatcher.fleet.replicas.get(replica)
            others = sum(len(r.policy) for r in self.dispatcher._requests[request].model.routes) > 1
            if second is not None:
                del self.seconds[request]
                if fault is not ev.Fault.TOTAL:
                    self.sent[request] = second
            self.tell(ev.Failed(self.now, request, fault, 500, "it broke", rng.choice(["", body])))
            if second is not None and fault is not ev.Fault.TOTAL:
                assert self.sent[request] == second, "INV-20: the second attempt goes on"
                return
            assert request in self.sent or request in self.held or request in self.ended, "INV-2: an answer"
            if content:
                assert request in self.ended, "INV-12: no retry after content"
            elif request in self.sent and life is not None and others:
                assert self.sent[request][0] != replica, "INV-12: a retry goes elsewhere"

    def finish_all(self) -> None:
        for _ in range(400):
            self.now += 0.2
            for request in list(self.sent):
                self.end(request, "finished")
                self.tell(ev.Finished(self.now, request, 200, 5))
            self.tell(ev.Tick(self.now))
            if not self.sent and not self.held:
                break
        assert len(self.ended) == self.next_id, "INV-2: every request ends exactly once"
        for replica in self.dispatcher.fleet.replicas.values():
            assert replica.in_flight == replica.pending == replica.prefill == replica.decode == replica.context == 0, (
                "INV-1: counters return to zero"
            )
        assert self.dispatcher.live == self.dispatcher.held == 0, "INV-2"


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 2**32),
    policy=st.sampled_from(["queue_depth", "round_robin", "least_connections", "adaptive", "prefix_affinity"]),
)
def test_random_stories_keep_every_invariant(seed: int, policy: str) -> None:
    world = World(Random(seed), policy)
    for name in ("p0", "p1", "q0", "x0", "y0"):
        world.tell(ev.ReplicaUp(0.0, name, name[0]))
    for _ in range(150):
        world.step()
    world.finish_all()


@settings(max_examples=8, deadline=None)
@given(
    seed=st.integers(0, 2**32), policy=st.sampled_from(["queue_depth", "round_robin", "adaptive", "prefix_affinity"])
)
def test_a_recorded_log_replays_to_the_same_instructions(seed: int, policy: str) -> None:
    """INV-13: same seed, same events, same instructions; chance and time come only from outside."""
    world = World(Random(seed), policy)
    for _ in range(150):
        world.step()
    again = [list(answer) for _, answer in replay(fresh(7, policy), world.log)]
    assert len(again) == len(world.answers)
    for mine, theirs in zip(world.answers, again, strict=True):
        assert [repr(i) for i in mine] == [repr(i) for i in theirs]
