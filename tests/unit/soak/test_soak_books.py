"""The gateway's books beside what clients saw: what the soak finds."""

from __future__ import annotations

import json
from collections import Counter
from math import inf
from typing import Any

import pytest
from benchmarks.soak.books import Line, Row, Sums, judge_books, judge_pools, read_access_log, sums
from benchmarks.soak.fairness import judge_waits, waits
from benchmarks.soak.poison import judge_poison
from benchmarks.soak.results import Accepted, End, Sent

SENT = Sent("free-1", "free", 10.0, 11.0, End.OK, Accepted.YES, 200, 7, 3)
ROW = Row("kc-1", 10.0, 11.0, "free", "m", "left", 7, 3, False, 0.0, "ok", 200)
LINE = Line("kc-1", 200, "ok", (7, 3))


def never(at: float) -> bool:
    return False


def found(sent: Sent = SENT, lines: list[Line] | None = None, row: Row | None = ROW) -> list[str]:
    log = {sent.id: [LINE] if lines is None else lines}
    return list(judge_books([sent], log, {} if row is None else {row.request_id: row}, never))


def test_books_that_are_right() -> None:
    assert found() == []


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"lines": []}, "not in the access log"),
        ({"lines": [LINE, LINE]}, "2 lines"),
        ({"row": None}, "not in the ledger"),
        ({"row": ROW._replace(tenant="batch")}, "on batch's account"),
        ({"row": ROW._replace(prompt_tokens=8)}, "the log has"),
        ({"row": ROW._replace(prompt_tokens=8), "lines": [LINE._replace(tokens=(8, 3))]}, "7 prompt tokens, 8"),
        ({"row": ROW._replace(output_tokens=4), "lines": [LINE._replace(tokens=(7, 4))]}, "3 output tokens, 4"),
        ({"row": ROW._replace(estimated=True)}, "an estimate"),
        ({"row": ROW._replace(outcome="timeout")}, "answered, but timeout"),
        ({"sent": SENT._replace(end=End.REFUSED, status=429), "lines": []}, "not in the access log"),
    ],
)
def test_books_that_are_wrong(changed: dict[str, Any], says: str) -> None:
    first, *_ = found(**changed)
    assert says in first


def test_who_left_need_not_be_in_any_book() -> None:
    assert found(SENT._replace(end=End.LEFT, status=0), [], None) == []


def test_tokens_that_the_client_does_not_know_are_not_compared() -> None:
    assert found(SENT._replace(prompt_tokens=-1)) == []


def test_what_a_killed_worker_had_not_written_is_excused_and_nothing_else() -> None:
    other = SENT._replace(id="free-2", ended=20.0)
    assert list(judge_books([SENT, other], {}, {}, lambda at: at == 11.0)) == [
        "free-2: ok 200, but not in the access log"
    ]


def test_the_access_log_is_json_without_keys_and_prompts() -> None:
    line = {"request_id": "kc-1", "client_request_id": "free-1", "status": 200, "outcome": "ok", "prompt_tokens": 7}
    good = json.dumps(line | {"output_tokens": 3}).encode()
    log, violations = read_access_log([good], [b"sk-"])
    assert log == {"free-1": [LINE]} and not violations
    torn = [b'{"time":', json.dumps(line).encode(), b"[]", good.replace(b"free-1", b"sk-soak")]
    assert len(read_access_log(torn, [b"sk-"])[1]) == 4


def test_the_exclusive_pool_is_its_owners_alone() -> None:
    def on(tenant: str, pool: str) -> int:
        return len(list(judge_pools([ROW._replace(tenant=tenant, pool=pool)])))

    assert (on("owner", "own"), on("free", "left"), on("free", "")) == (0, 0, 0)
    assert (on("free", "own"), on("owner", "left")) == (1, 1)


def test_sums_are_by_tenant() -> None:
    assert sums([ROW, ROW, ROW._replace(tenant="b")]) == {"free": Sums(2, 14, 6), "b": Sums(1, 7, 3)}


def held(tenant: str, seconds: float, at: float = 1.0) -> list[Row]:
    return [ROW._replace(tenant=tenant, held=seconds, started=at)] * 30


CROWD = [(0.0, 3.0)]


def test_a_crowd_may_wait_longer_than_others_but_not_they_longer_than_it() -> None:
    fair = [*held("flood", 2.0), *held("free", 0.1), *held("free", 9.0, at=50.0)]
    assert waits(fair, CROWD)["free"].p90 == 0.1
    assert list(judge_waits(fair, CROWD, "flood", {"free": 1.0})) == []
    starved = [*held("flood", 0.1), *held("free", 2.0)]
    assert len(list(judge_waits(starved, CROWD, "flood", {"free": 1.0}))) == 1


def test_who_asks_more_often_than_the_crowd_for_its_weight_is_one_itself() -> None:
    rows = [*held("flood", 0.1), *held("heavy", 2.0), *held("heavy", 2.0)]
    assert list(judge_waits(rows, CROWD, "flood", {"heavy": 1.0})) == []
    assert len(list(judge_waits(rows, CROWD, "flood", {"heavy": 2.0}))) == 1
    assert len(list(judge_waits(rows, CROWD, "flood", {"heavy": inf}))) == 1


def test_few_waits_say_nothing() -> None:
    rows = held("free", 2.0)[:5] + held("flood", 0.1)
    assert list(judge_waits(rows, CROWD, "flood", {"free": 1.0})) == []


def test_a_third_death_of_one_body_is_one_too_many() -> None:
    assert list(judge_poison(Counter({"1-5": 2, "2-5": 3}), 2)) == ["poison 2-5 killed 3 replicas"]
