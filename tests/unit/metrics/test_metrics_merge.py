"""One page of several workers' registries."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kilocard.metrics.merge import Page, Totals, merged, page
from kilocard.metrics.names import Metric
from kilocard.metrics.render import Registry

REQUESTS = Metric("requests_total", "counter", "Requests.", ("model",))
SECONDS = Metric("seconds", "histogram", "Seconds.", (), (1.0, 2.0))
HELD = Metric("held", "gauge", "Held.")
AGE = Metric("age", "gauge", "Age.", ("replica",), merge="max")
STATE = Metric("state", "gauge", "State.", ("state",), merge="mean")
METRICS = (REQUESTS, SECONDS, HELD, AGE, STATE)
BY_NAME = {metric.name: metric for metric in METRICS}


def worker(requests: int, seconds: float, held: int, age: float, state: str) -> Page:
    registry = Registry()
    registry.counter(REQUESTS).labels("m").inc(requests)
    registry.histogram(SECONDS).only.observe(seconds)
    registry.gauge(HELD).only.set(held)
    registry.gauge(AGE).labels("a").set(age)
    registry.gauge(STATE).labels(state).set(1)
    return page(registry)


def lines(registry: Registry) -> list[str]:
    return [line for line in registry.render().decode().splitlines() if not line.startswith("#")]


def test_counters_are_summed_and_gauges_merged_by_their_meaning() -> None:
    pages = [worker(3, 0.5, 2, 0.25, "ready"), worker(4, 1.5, 1, 0.75, "ejected")]
    assert lines(merged(METRICS, pages, 2)) == [
        'requests_total{model="m"} 7',
        'seconds_bucket{le="1.0"} 1',
        'seconds_bucket{le="2.0"} 2',
        'seconds_bucket{le="+Inf"} 2',
        "seconds_sum 2.0",
        "seconds_count 2",
        "held 3",
        'age{replica="a"} 0.75',
        'state{state="ready"} 0.5',
        'state{state="ejected"} 0.5',
    ]


def test_what_a_dead_worker_counted_stays_and_its_gauges_go() -> None:
    totals = Totals()
    totals.add(worker(3, 0.5, 2, 9.0, "ready"), BY_NAME)
    totals.add(worker(1, 0.5, 2, 9.0, "ready"), BY_NAME)
    said = lines(merged(METRICS, [totals.page, worker(4, 1.5, 1, 0.75, "ready")], 1))
    assert 'requests_total{model="m"} 8' in said
    assert "seconds_count 3" in said
    assert "held 1" in said
    assert 'age{replica="a"} 0.75' in said


def test_one_worker_alone_reads_as_if_it_had_been_asked_itself() -> None:
    registry = Registry()
    registry.counter(REQUESTS).labels("m").inc(2)
    registry.histogram(SECONDS).only.observe(1.5)
    registry.gauge(HELD)
    registry.gauge(AGE).labels("a").set(None)
    registry.gauge(STATE).labels("ready").set(1)
    assert merged(METRICS, [page(registry)], 1).render().replace(b"1.0\n", b"1\n") == registry.render()


def test_totals_need_no_gauges() -> None:
    registry = Registry()
    registry.gauge(HELD).only.set(1)
    registry.counter(REQUESTS).labels("m").inc()
    assert page(registry, gauges=False) == {"requests_total": [(("m",), [1])]}


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1000), st.booleans()), max_size=40))
def test_no_counter_falls_when_workers_die(steps: list[tuple[int, int, bool]]) -> None:
    totals = Totals()
    counts = dict.fromkeys(range(4), 0)
    shown = 0
    for who, more, dies in steps:
        counts[who] += more
        pages = {id: {"requests_total": page_of(count)} for id, count in counts.items()}
        if dies:
            totals.add(pages.pop(who), BY_NAME)
            counts[who] = 0
        registry = merged([REQUESTS], [totals.page, *pages.values()], 4)
        now = int(registry.families[0].children[("m",)].value or 0)  # type: ignore[union-attr]  # a counter
        assert now == shown + more
        shown = now


def page_of(count: int) -> list:  # type: ignore[type-arg]  # of Series
    registry = Registry()
    registry.counter(REQUESTS).labels("m").inc(count)
    return page(registry)["requests_total"]
