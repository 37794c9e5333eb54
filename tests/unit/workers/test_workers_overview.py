"""One /state of several."""

from __future__ import annotations

from typing import Any

from kilocard.workers.overview import combined


def worker(in_flight: int, state: str, age: float | None, held: int = 0) -> dict[str, Any]:
    replica = {"id": "p/a", "pool": "p", "state": state, "reason": f"why {state}", "in_flight": in_flight,
               "running": None if age is None else 3.0, "age_s": age, "limit": 2, "url": "http://a"}  # fmt: skip
    return {
        "gateway": {"version": "1", "ready": True, "connections": 5, "in_flight": in_flight, "held": held},
        "models": [{"id": "m", "held": held, "pools": {"p": 100}}],
        "pools": [{"id": "p", "replicas": 1, "in_flight": in_flight}],
        "quarantine": [],
        "replicas": [replica],
    }


def test_own_requests_are_summed_and_views_are_not() -> None:
    state = combined([worker(3, "ready", 0.5, held=1), worker(4, "ready", None)])
    assert state["gateway"] == {"version": "1", "ready": True, "connections": 10, "in_flight": 7, "held": 1}
    assert state["models"] == [{"id": "m", "held": 1, "pools": {"p": 100}}]
    assert state["pools"] == [{"id": "p", "replicas": 1, "in_flight": 7}]
    (replica,) = state["replicas"]
    assert (replica["in_flight"], replica["running"], replica["age_s"], replica["limit"]) == (7, 3.0, 0.5, 4)
    assert "workers" not in replica


def test_where_workers_disagree_the_row_says_so() -> None:
    states = [worker(0, "ready", 0.1), worker(0, "ejected", 0.1), worker(0, "ejected", 0.1)]
    (replica,) = combined(states)["replicas"]
    assert (replica["state"], replica["reason"]) == ("ejected", "why ejected")
    assert replica["workers"] == {"ready": 1, "ejected": 2}
    (replica,) = combined(states[:2])["replicas"]
    assert replica["state"] == "ejected"


def test_nobody_there_is_an_empty_fleet() -> None:
    assert combined([])["replicas"] == []
