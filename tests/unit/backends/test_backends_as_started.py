"""A changed cluster file, and replicas that run with the arguments of the old one."""

from __future__ import annotations

from dataclasses import replace

from kilocard.backends.as_started import as_started
from kilocard.spec.model import ClusterSpec, ModelSpec, PoolSpec, ReplicaRange

POOL = PoolSpec("p", "vllm", model="a/b", args={"max-num-seqs": 8})
SPEC = ClusterSpec(models={"m": ModelSpec("m", {"p": 1})}, pools={"p": POOL})
STARTED, SERVED = {"p": POOL}, {"p": ("m",)}


def test_arguments_wait_for_a_restart_and_all_else_changes() -> None:
    new = replace(POOL, args={"max-num-seqs": 9}, env={"A": "1"}, replicas=ReplicaRange(2, 2), max_in_flight=3)
    spec, waiting = as_started(replace(SPEC, pools={"p": new}), STARTED, SERVED)
    assert waiting == ["pools.p.args", "pools.p.env"]
    assert spec.pools["p"] == replace(POOL, replicas=ReplicaRange(2, 2), max_in_flight=3)


def test_a_model_that_is_new_to_running_replicas_is_asked_by_a_name_they_know() -> None:
    models = {**SPEC.models, "n": ModelSpec("n", {"p": 1})}
    spec, waiting = as_started(replace(SPEC, models=models), STARTED, SERVED)
    assert (spec.pools["p"].served_model_name, waiting) == ("m", [])


def test_the_other_way_round_nothing_is_needed() -> None:
    assert as_started(SPEC, STARTED, {"p": ("m", "n")}) == (SPEC, [])


def test_new_pools_and_pools_that_end_are_as_the_file_says() -> None:
    pools = {"p": replace(POOL, args={}, endpoints=("http://h:1",)), "q": PoolSpec("q", "emulated")}
    assert as_started(replace(SPEC, pools=pools), STARTED, SERVED) == (replace(SPEC, pools=pools), [])
