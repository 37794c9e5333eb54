"""What we export can be read back by the exact parser, whatever the label values are."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilocard.metrics import names
from kilocard.metrics.exact import parse
from kilocard.metrics.names import OTHER, Metric
from kilocard.metrics.render import Registry, written

GAUGE = Metric("g", "gauge", "A gauge.", ("model", "pool"))
COUNTER = Metric("c_total", "counter", "A counter.", ("model",))
HISTOGRAM = Metric("h_seconds", "histogram", "A histogram.", ("model",), (0.1, 1.0, 10.0))


def test_the_page_reads_as_expected() -> None:
    registry = Registry()
    registry.counter(COUNTER).labels("qwen").inc()
    registry.histogram(HISTOGRAM).labels("qwen").observe(0.5)
    assert registry.render().decode().splitlines() == [
        "# HELP c_total A counter.",
        "# TYPE c_total counter",
        'c_total{model="qwen"} 1',
        "# HELP h_seconds A histogram.",
        "# TYPE h_seconds histogram",
        'h_seconds_bucket{model="qwen",le="0.1"} 0',
        'h_seconds_bucket{model="qwen",le="1.0"} 1',
        'h_seconds_bucket{model="qwen",le="10.0"} 1',
        'h_seconds_bucket{model="qwen",le="+Inf"} 1',
        'h_seconds_sum{model="qwen"} 0.5',
        'h_seconds_count{model="qwen"} 1',
    ]


texts = st.text(st.characters(codec="utf-8"), max_size=12)


@settings(max_examples=50, deadline=None)
@given(
    gauges=st.dictionaries(st.tuples(texts, texts), st.one_of(st.none(), st.floats()), max_size=5),
    counters=st.dictionaries(texts, st.one_of(st.integers(0, 2**60), st.floats(0, 1e300)), max_size=5),
    observed=st.lists(st.floats(0, 100), max_size=20),
)
def test_the_exact_parser_gives_the_values_back(
    gauges: dict[tuple[str, str], float | None], counters: dict[str, float], observed: list[float]
) -> None:
    registry = Registry()
    gauge, counter, histogram = registry.gauge(GAUGE), registry.counter(COUNTER), registry.histogram(HISTOGRAM)
    for labels, value in gauges.items():
        gauge.labels(*labels).set(value)
    for model, value in counters.items():
        counter.labels(model).inc(value)
    for value in observed:
        histogram.labels('evil"name\n\u2028x').observe(value)

    page = parse(registry.render())

    assert page.junk == 0
    read = {(s.name, *s.labels.values()): s.value for s in page.samples}
    assert len(read) == len(page.samples)
    for labels, value in gauges.items():
        if value is None or math.isnan(value):
            assert ("g", *labels) not in read, "unknown is left out, never NaN or 0"
        else:
            assert read["g", *labels] == value
    for model, value in counters.items():
        assert read["c_total", model] == float(value)
    if observed:
        evil = 'evil"name\n\u2028x'
        assert read["h_seconds_count", evil] == read["h_seconds_bucket", evil, "+Inf"] == len(observed)
        assert read["h_seconds_sum", evil] == pytest.approx(sum(observed))
        assert read["h_seconds_bucket", evil, "1.0"] == sum(value <= 1.0 for value in observed)


def test_a_full_family_folds_further_series_into_other() -> None:
    # a scanner's 17,700 paths as label values must not grow our page
    requests = Registry().counter(COUNTER)
    requests.max_series = 3
    for number in range(10):
        requests.labels(f"model-{number}").inc()
    assert requests.labels(OTHER).value == 7
    assert len(requests.children) == 4
    assert requests.folded >= 7


@pytest.mark.parametrize("unknown", [None, math.nan])
def test_an_unknown_gauge_is_left_out(unknown: float | None) -> None:
    registry = Registry()
    registry.gauge(GAUGE).labels("m", "p").set(unknown)
    assert registry.render() == b"# HELP g A gauge.\n# TYPE g gauge\n"


def test_removed_series_leave_the_page() -> None:
    registry = Registry()
    gauge = registry.gauge(GAUGE)
    gauge.labels("m", "p").set(1.0)
    gauge.remove("m", "p")
    gauge.remove("m", "never there")
    assert b"g{" not in registry.render()


def test_gauges_can_be_set_when_the_page_is_read() -> None:
    registry = Registry()
    connections = registry.gauge(names.OPEN_CONNECTIONS)
    registry.before_page.append(lambda: connections.only.set(12))
    assert b"\nkilocard_open_connections 12\n" in registry.render()


def test_mistakes_are_found_when_the_registry_is_built() -> None:
    registry = Registry()
    registry.gauge(GAUGE)
    with pytest.raises(ValueError, match="registered already"):
        registry.gauge(GAUGE)
    with pytest.raises(ValueError, match="is a counter, not a gauge"):
        registry.gauge(COUNTER)
    with pytest.raises(ValueError, match="buckets must rise"):
        registry.histogram(Metric("x", "histogram", "X.", (), (2.0, 1.0)))
    with pytest.raises(ValueError, match="has the labels"):
        registry.counter(COUNTER).labels("too", "many")


def test_values_that_python_writes_in_its_own_way() -> None:
    assert [written(v) for v in (math.inf, -math.inf, math.nan, 3, 0.25)] == ["+Inf", "-Inf", "NaN", "3", "0.25"]


@pytest.mark.parametrize("metric", names.ALL, ids=lambda metric: metric.name)
def test_every_exported_family_follows_the_conventions(metric: Metric) -> None:
    assert metric.name.startswith("kilocard_")
    assert metric.help.endswith(".")
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert (metric.kind == "histogram") == bool(metric.buckets)
    assert "le" not in metric.labels
    {"counter": Registry().counter, "gauge": Registry().gauge, "histogram": Registry().histogram}[metric.kind](metric)


def test_exported_names_are_unique() -> None:
    assert len({metric.name for metric in names.ALL}) == len(names.ALL)
