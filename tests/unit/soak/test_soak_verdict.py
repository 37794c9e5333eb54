"""Which ends of a request the soak excuses, and why."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from benchmarks.soak.cast import FRAGILE, OWNER, casting
from benchmarks.soak.cast import cast as everybody
from benchmarks.soak.chaos import Chaos, Illness, plan
from benchmarks.soak.cluster import GatewayProcess
from benchmarks.soak.crowds import Crowds
from benchmarks.soak.files import Layout
from benchmarks.soak.history import History
from benchmarks.soak.poison import DIED
from benchmarks.soak.results import Accepted, End, Result, Results
from benchmarks.soak.verdict import Excuses, explain, judge_counts, judge_memory, outcomes
from benchmarks.soak.watch import Sample, Watch
from benchmarks.soak.worker_kills import KILLED

from kilocard.core.errors import SpecError
from kilocard.spec.load import load

TENANTS = everybody(1.0)


def excuses(*ill: str, denied: int = 0) -> Excuses:
    """`ill`: what replicas 0, 1, 2 … have, from 10 s to 20 s."""
    chaos = Chaos([], [])
    chaos.illnesses = [Illness(number, kind, 10.0, 20.0) for number, kind in enumerate(ill)]
    watch = Watch(cast(GatewayProcess, None))
    watch.samples = [Sample(at / 2, {1: 50_000}, 9, 0, 0, 0, denied if at > 24 else 0) for at in range(80)]
    return Excuses(chaos, Crowds(1, 60, cast(Any, None)), History(), watch, TENANTS)


def failed(end: End = End.ERROR, code: str = "reset", tenant: str = "free", **more: Any) -> Result:
    return Result("plain", 12.0, 13.0, end, Accepted.YES, tenant=tenant, model=TENANTS[tenant].model, code=code, **more)


def test_a_request_without_content_may_fail_only_where_all_its_attempts_could() -> None:
    assert explain(failed(), excuses("kill", "hang")) is None
    assert explain(failed(), excuses("kill", "hang", "error")) == "as many replicas ill as it has attempts"
    assert explain(failed(), excuses("kill", denied=3)) == "no retries left in the budget"
    later = Result("plain", 18.0, 19.0, End.ERROR, Accepted.YES, tenant="free", model="m", code="reset")
    assert explain(later, excuses("kill", denied=3)) is None


def test_a_stream_may_break_where_a_replica_was_ill() -> None:
    assert explain(failed(content=3), excuses()) is None
    assert explain(failed(content=3), excuses("kill")) == "its replica fell ill in mid-stream"


@pytest.mark.parametrize("end", [End.STUCK, End.WRONG])
def test_some_ends_have_no_excuse(end: End) -> None:
    assert explain(failed(end), excuses("kill", "hang", "error")) is None


def test_a_cut_connection_is_excused_by_a_killed_worker_alone() -> None:
    suffering = excuses("kill", "hang", "error")
    assert explain(failed(End.CUT), suffering) is None
    suffering.history.begin(KILLED, 12.5)
    assert explain(failed(End.CUT), suffering) == "its worker was killed"
    assert explain(failed(End.ERROR), excuses()) is None


def test_a_crowd_excuses_those_that_yield_to_it() -> None:
    crowded = excuses()
    crowded.crowds.times.append(11.0)
    assert explain(failed(code="hold_full", tenant="flood"), crowded) == "a crowd took all room"
    assert explain(failed(code="hold_full", tenant="free"), crowded) is None


def test_who_has_other_replicas_is_not_excused_by_those_that_suffer() -> None:
    suffering = excuses("kill", "hang", "error")
    assert explain(failed(tenant=OWNER), suffering) is None
    assert explain(failed(tenant="tester"), suffering) is None


def test_a_death_of_poison_breaks_streams_and_nothing_else() -> None:
    deadly = excuses()
    deadly.history.begin(DIED, 12.5)
    assert failed(tenant="tester").model == FRAGILE
    assert explain(failed(tenant="tester", content=2), deadly) == "its replica fell ill in mid-stream"
    assert explain(failed(tenant="tester"), deadly) is None
    assert explain(failed(tenant="tester", code="poison_request"), deadly) is None, "an innocent body was convicted"


def test_an_innocent_body_needs_three_deaths_to_be_taken_for_poison() -> None:
    assert explain(failed(code="poison_request"), excuses("kill", "kill")) is None
    assert explain(failed(code="poison_request"), excuses("kill", "kill", "refuse")) is not None


def test_workers_suspect_on_their_own() -> None:
    """Another worker's poison kills two replicas with an innocent on them: one process would have seen both."""
    deadly = excuses()
    for since in (11.0, 13.0):
        deadly.history.begin(DIED, since)
    refused = failed(tenant="tester", code="poison_request")
    assert explain(refused, deadly) is None
    assert explain(refused, replace(deadly, workers=2)) is not None


def test_requests_are_counted_once(tmp_path: Path) -> None:
    results = Results(tmp_path / "sent", 0.0)
    for accepted in (Accepted.YES, Accepted.YES, Accepted.UNSURE, Accepted.NO):
        results.add(Result("plain", 1.0, 2.0, End.OK, accepted, status=200))
    page = 'kilocard_requests_total{model="m",outcome="ok"} 4\nkilocard_requests_total{model="m",outcome="timeout"} 1\n'
    assert outcomes(page) == {"ok": 4, "timeout": 1}
    assert len(judge_counts(results, outcomes(page), 0)) == 1
    assert judge_counts(results, outcomes(page.replace("4", "3").replace(" 1", " 0")), 0)[0].startswith("3 ok")
    assert judge_counts(results, outcomes(page.replace("4", "2")), 2) == []
    assert [one.accepted for one in results.sent()] == [Accepted.YES, Accepted.YES, Accepted.UNSURE, Accepted.NO]


def test_memory_is_judged_by_process_and_after_its_warm_up() -> None:
    watch = Watch(cast(GatewayProcess, None))
    watch.samples = [
        Sample(float(at), {1: 50_000 + min(at, 60) * 500, 2: 50_000 + at * 10}, 9, 0, 0, 0, 0) for at in range(600)
    ]
    growths, violations = judge_memory(watch, 90.0)
    assert [round(one.rate) for one in growths] == [0, 600]
    assert violations == ["memory of process 2 grows by 600 KiB a minute"]


def test_a_new_peak_of_connections_explains_memory_and_a_peak_that_is_over_does_not() -> None:
    def judged(kib_of: Callable[[int], int], connections_of: Callable[[int], int]) -> list[str]:
        watch = Watch(cast(GatewayProcess, None))
        watch.samples = [
            Sample(float(at), {1: 50_000 + kib_of(at)}, 9, 0, 0, connections_of(at), 0) for at in range(600)
        ]
        return judge_memory(watch, 90.0)[1]

    assert judged(lambda at: at * 8, lambda at: at) == []
    assert len(judged(lambda at: at * 8, lambda at: 600 - at)) == 1


def test_faults_of_one_seed_are_the_same_and_never_two_on_one_replica() -> None:
    faults = plan(3, 5, 300.0)
    assert faults == plan(3, 5, 300.0)
    for replica in range(5):
        mine = [fault for fault in faults if fault.replica == replica]
        assert all(one.at + one.seconds <= other.at for one, other in itertools.pairwise(mine))


def test_every_tenant_has_a_client() -> None:
    dealt = casting(TENANTS, 40)
    assert {tenant.name for tenant in dealt} == set(TENANTS) - {"flood"}


def test_all_versions_of_the_file_are_good_and_all_broken_ones_are_not(tmp_path: Path) -> None:
    urls = [f"http://127.0.0.1:{port}" for port in range(9000, 9009)]
    layout = Layout(tmp_path, 8000, 8001, suffering=urls[:5], own=urls[5:6], fragile=urls[6:], tenants=TENANTS)
    specs = []
    for variant in range(12):
        layout.path.write_text(layout.text(variant))
        specs.append(load(layout.path, env={}))
        layout.path.write_text(layout.broken(variant))
        with pytest.raises(SpecError):
            load(layout.path, env={})
    assert all(before != after for before, after in itertools.pairwise(specs))


def test_what_waits_for_a_locked_ledger_waits_since_the_lock_began() -> None:
    history = History()
    history.begin("lock", 10.0, until=19.0)
    history.begin("other", 1.0)
    assert history.began_at("lock", 12.0, after=5.0) == 10.0
    assert history.began_at("lock", 24.0, after=5.0) == 10.0
    assert history.began_at("lock", 24.5, after=5.0) == 24.5
    assert history.began_at("lock", 9.0, after=5.0) == 9.0
