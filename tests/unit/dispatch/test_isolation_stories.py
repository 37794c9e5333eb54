"""Pools that belong to some tenants: nobody else gets in, and what is theirs does not get out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from kilocard.core.errors import Forbidden
from kilocard.dispatch import events as ev
from kilocard.dispatch.config import PoolFacts
from kilocard.dispatch.dispatcher import Dispatcher
from kilocard.dispatch.instructions import Hold, Instruction, Refuse, Send
from kilocard.dispatch.isolation import Party, parties
from kilocard.spec.model import EjectSpec, HoldSpec, ModelSpec, TenantSpec
from kilocard.tenancy.access import Tenant, allow

MODEL = ModelSpec("m", {"open": 1, "own": 1}, hold=HoldSpec(100, 60.0))
OPEN, OWN = PoolFacts(max_in_flight=1), PoolFacts(max_in_flight=1, tenants=("owner",))


class Cluster:
    def __init__(self, *models: ModelSpec, **pools: PoolFacts) -> None:
        self.models = {model.name: model for model in models or (MODEL,)}
        self.pools = pools or {"open": OPEN, "own": OWN}
        self.dispatcher = Dispatcher(self.models, self.pools, Random(1))
        self.now = 0.0
        self.asked = 0
        for pool in self.pools:
            self.tell(ev.ReplicaUp(0.0, f"{pool}-1", pool))

    def tell(self, event: ev.Event) -> Sequence[Instruction]:
        return list(self.dispatcher.handle(event))

    def ask(self, tenant: str, model: str = "m") -> Instruction:
        self.asked += 1
        (answer,) = self.tell(ev.Arrived(self.now, self.asked, model, 100, 100, 1e6, tenant))
        return answer

    def finish(self, request: int) -> Sequence[Instruction]:
        return self.tell(ev.Finished(self.now, request, 200, 10))


def pool_of(answer: Instruction) -> str:
    assert isinstance(answer, Send), answer
    return answer.pool


def test_each_goes_to_its_own_pool_and_nobody_spills_over() -> None:
    for _ in range(20):
        cluster = Cluster()
        assert pool_of(cluster.ask("owner")) == "own"
        assert pool_of(cluster.ask("guest")) == "open"
        assert [type(cluster.ask(who)) for who in ("owner", "guest", "")] == [Hold] * 3


def test_who_waits_for_one_pool_does_not_block_the_other() -> None:
    cluster = Cluster()
    cluster.ask("guest")
    for _ in range(30):
        cluster.ask("guest")
    mine = cluster.ask("owner")
    assert pool_of(mine) == "own"
    waits = cluster.ask("owner")
    assert isinstance(mine, Send) and isinstance(waits, Hold)
    assert [(i.request, i.pool) for i in cluster.finish(mine.request) if isinstance(i, Send)] == [
        (waits.request, "own")
    ]


def test_one_tenants_full_queue_is_not_the_others() -> None:
    cluster = Cluster(replace(MODEL, hold=HoldSpec(2, 60.0)))
    assert [type(cluster.ask("guest")) for _ in range(4)] == [Send, Hold, Hold, Refuse]
    assert [type(cluster.ask("owner")) for _ in range(4)] == [Send, Hold, Hold, Refuse]


@pytest.mark.parametrize("fault", [ev.Fault.CONNECT, ev.Fault.RESET, ev.Fault.FIRST_TOKEN])
def test_no_retry_gets_in_or_out(fault: ev.Fault) -> None:
    for tenant, pool in (("owner", "own"), ("guest", "open")):
        cluster = Cluster()
        for replica in (f"{pool}-2", f"{pool}-3"):
            cluster.tell(ev.ReplicaUp(0.0, replica, pool))
        answer = cluster.ask(tenant)
        pools = []
        while isinstance(answer, Send):
            pools.append(answer.pool)
            answer = cluster.tell(ev.Failed(0.0, answer.request, fault, None, ""))[0]
        assert set(pools) == {pool} and len(pools) == 3


def test_no_strangers_trial_on_a_half_open_replica() -> None:
    cluster = Cluster(replace(MODEL, eject=EjectSpec(backoff=1.0)), open=OPEN, own=OWN._replace(max_in_flight=None))
    cluster.tell(ev.ReplicaUp(0.0, "own-2", "own"))
    sent = cluster.ask("owner")
    assert isinstance(sent, Send)
    cluster.tell(ev.Failed(0.0, sent.request, ev.Fault.CONNECT, None, ""))
    cluster.tell(ev.Tick(3.0))
    cluster.tell(ev.Probed(3.0, sent.replica, True))
    assert cluster.dispatcher.fleet.replicas[sent.replica].health.state.value == "half_open"
    cluster.ask("guest")
    assert isinstance(cluster.ask("guest"), Hold)
    assert cluster.dispatcher.fleet.replicas[sent.replica].in_flight == 0


def test_a_model_whose_pools_all_belong_to_others_is_forbidden_in_the_words_of_a_key_without_rights() -> None:
    cluster = Cluster(ModelSpec("m", {"own": 1}), own=OWN)
    refusal = cluster.ask("guest")
    assert isinstance(refusal, Refuse)
    with pytest.raises(Forbidden) as words:
        allow(Tenant.of(TenantSpec("x", models=("other",))), "m")
    assert type(refusal.error) is Forbidden
    assert (str(refusal.error), refusal.error.code) == (str(words.value), words.value.code)
    assert not cluster.dispatcher.may_use("m", "guest")
    assert cluster.dispatcher.may_use("m", "owner")
    assert pool_of(cluster.ask("owner")) == "own"


def test_the_list_in_an_unknown_models_error_does_not_name_what_belongs_to_others() -> None:
    cluster = Cluster(ModelSpec("secret", {"own": 1}), ModelSpec("m", {"open": 1}), open=OPEN, own=OWN)
    refusal = cluster.ask("guest", "nonsense")
    assert isinstance(refusal, Refuse)
    assert "there is: m" in str(refusal.error) and "secret" not in str(refusal.error)


def test_data_stays_inside_even_if_the_own_pool_gets_no_traffic() -> None:
    """Weight 0 is how a pool is taken out of traffic; it is no leave to go elsewhere."""
    cluster = Cluster(replace(MODEL, pools={"open": 1, "own": 0}))
    refusal = cluster.ask("owner")
    assert isinstance(refusal, Refuse) and refusal.error.code == "no_replica"
    assert "weight 0" in str(refusal.error), "not that replicas are missing"
    assert pool_of(cluster.ask("guest")) == "open"


def test_another_models_pools_are_no_matter() -> None:
    """Owning a pool of one model says nothing of the next model."""
    cluster = Cluster(MODEL, ModelSpec("n", {"open": 1}))
    assert pool_of(cluster.ask("owner", "n")) == "open"


def test_parties() -> None:
    model = ModelSpec("m", {"p": 1, "x": 1, "y": 0, "z": 1})
    facts = {"x": PoolFacts(tenants=("a", "b")), "y": PoolFacts(tenants=("b", "c", "d")), "p": PoolFacts()}
    assert parties(model, facts) == [
        Party(frozenset(), ("p", "z")),
        Party(frozenset({"a"}), ("x",)),
        Party(frozenset({"b"}), ("x", "y")),
        Party(frozenset({"c", "d"}), ("y",)),
    ]


def test_two_owners_share_what_both_may_use() -> None:
    """One has a second pool, so their requests wait in two queues; neither pushes the other back."""
    both = PoolFacts(max_in_flight=1, tenants=("a", "b"))
    only = PoolFacts(max_in_flight=1, tenants=("a",))
    cluster = Cluster(ModelSpec("m", {"both": 1, "only": 1}, hold=HoldSpec(1000, 60.0)), both=both, only=only)
    running = {pool_of(sent): sent.request for sent in (cluster.ask("a"), cluster.ask("a")) if isinstance(sent, Send)}
    tenant = {}
    for number in range(400):
        name = "ab"[number % 2]
        tenant[cluster.ask(name)._asdict()["request"]] = name
    counts: Counter[str] = Counter()
    for _ in range(100):
        (sent,) = (i for i in cluster.finish(running["both"]) if isinstance(i, Send))
        running["both"] = sent.request
        counts[tenant[sent.request]] += 1
    assert counts["a"] == pytest.approx(50, abs=1)


# --- a changed file


def change(cluster: Cluster, **pools: Any) -> Sequence[Instruction]:
    return cluster.tell(ev.Reconfigured(0.0, cluster.models, cluster.pools | pools, 1.0))


def test_a_pool_that_is_given_to_somebody_takes_no_more_from_others() -> None:
    cluster = Cluster(open=OPEN, own=OPEN)
    running = [cluster.ask("guest"), cluster.ask("guest")]
    waits = [cluster.ask("guest"), cluster.ask("owner")]
    assert change(cluster, own=OWN) == []
    of = {pool_of(sent): sent.request for sent in running if isinstance(sent, Send)}
    assert [(i.request, i.pool) for i in cluster.finish(of["own"]) if isinstance(i, Send)] == [(4, "own")]
    assert [(i.request, i.pool) for i in cluster.finish(of["open"]) if isinstance(i, Send)] == [(3, "open")]
    assert all(isinstance(answer, Hold) for answer in waits)


def test_a_model_that_is_given_to_somebody_ends_for_those_who_wait() -> None:
    cluster = Cluster(ModelSpec("m", {"own": 1}), own=OPEN)
    running = cluster.ask("guest")
    waits = cluster.ask("guest")
    assert isinstance(running, Send) and isinstance(waits, Hold)
    (refusal,) = change(cluster, own=OWN)
    assert isinstance(refusal, Refuse) and refusal.request == waits.request and refusal.error.http_status == 403
    (end,) = cluster.tell(ev.Failed(0.0, running.request, ev.Fault.CONNECT, None, ""))
    assert isinstance(end, Refuse), "what ran may end, but does not begin anew where it may not be"
    assert cluster.dispatcher.live == 0


def test_a_pool_that_becomes_everybodys_helps_who_waits_at_once() -> None:
    cluster = Cluster()
    cluster.ask("guest")
    waits = cluster.ask("guest")
    (sent,) = change(cluster, own=OPEN)
    assert isinstance(sent, Send) and (sent.request, sent.pool) == (waits._asdict()["request"], "own")
