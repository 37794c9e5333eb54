"""Metrics pages that fooled others, read with the engines' own dialects. Names begin with the case's id in
docs/cases.md."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kilocard.core.load import LoadSample
from kilocard.engines.registry import engine
from kilocard.metrics.exact import parse
from kilocard.metrics.exposition_error import NotExposition
from kilocard.metrics.fast import Layout, extract
from kilocard.metrics.load import sample_from
from kilocard.metrics.quantile import quantile
from kilocard.metrics.rates import RateMeter
from kilocard.scrape.pages import Ask, PageSearch, Unreadable
from kilocard.spec.model import PoolSpec

FIXTURES = Path(__file__).parents[2] / "fixtures" / "metrics"


def search(name: str) -> PageSearch:
    return PageSearch(engine(name).metrics_pages(PoolSpec("p", name)))


def read(name: str, page: str) -> LoadSample | Ask | Unreadable:
    pages = search(name)
    return pages.answer(pages.begin().page, 200, page.encode(), 0.0)


def test_mt_01_both_names_of_the_kv_gauge_the_new_one_first_and_never_0_for_neither() -> None:
    both = "# page\nvllm:gpu_cache_usage_perc 0.5\nvllm:kv_cache_usage_perc 0.25\nvllm:num_requests_running 1\n"
    old = both.replace("vllm:kv_cache_usage_perc 0.25\n", "")
    neither = old.replace("vllm:gpu_cache_usage_perc 0.5\n", "")
    seen = [read("vllm", page) for page in (both, old, neither)]
    assert [sample.kv_usage for sample in seen if isinstance(sample, LoadSample)] == [0.25, 0.5, None]


LLAMACPP = (
    "# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed.\n"
    "# TYPE llamacpp:prompt_tokens_total counter\nllamacpp:prompt_tokens_total 1523\n"
    "llamacpp:requests_processing 2\nllamacpp:requests_deferred 1\n"
)


def test_mt_02_a_page_that_is_one_json_string_is_read() -> None:
    assert read("llamacpp", json.dumps(LLAMACPP)) == LoadSample(0.0, 2.0, 1.0, prompt_tokens_total=1523.0)
    assert read("external", json.dumps(LLAMACPP)) == read("llamacpp", LLAMACPP), "where the engine is unknown, too"


def test_mt_02_and_one_that_is_broken_says_whose_fault_it_is() -> None:
    found = read("llamacpp", json.dumps(LLAMACPP)[:-20])
    assert isinstance(found, Unreadable)
    assert "JSON string" in found.reason and "llama.cpp" in found.reason and "upgrade" in found.reason


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf"])
def test_mt_04_one_odd_value_costs_one_sample(value: str) -> None:
    page = (
        f'# page\nsglang:fwd_occupancy{{model_name="m"}} {value}\nsglang:num_running_reqs 3\nsglang:token_usage 0.5\n'
    )
    sample = read("sglang", page)
    assert isinstance(sample, LoadSample)
    assert (sample.running, sample.kv_usage) == (3.0, 0.5)
    bad = read("sglang", page.replace("num_running_reqs 3", f"num_running_reqs {value}"))
    assert isinstance(bad, LoadSample)
    assert (bad.running, bad.kv_usage) == (None, 0.5)


def test_mt_07_sixteen_data_parallel_engines_are_one_replica_whichever_server_tells() -> None:
    """A log line shows a few of them; the page has all."""
    lines = [f'vllm:num_requests_running{{engine="{n}",model_name="m"}} {n}' for n in range(16)]
    lines += [f'vllm:num_requests_waiting{{engine="{n}",model_name="m"}} 1' for n in range(16)]
    sample = read("vllm", "# page\n" + "\n".join(lines) + "\n")
    assert isinstance(sample, LoadSample)
    assert (sample.running, sample.waiting) == (120.0, 16.0)


def test_mt_10_a_median_beyond_the_last_bucket_is_a_lower_bound() -> None:
    text = (FIXTURES / "sglang_overloaded.txt").read_text() + (
        'sglang:time_to_first_token_seconds_bucket{le="25.0",model_name="m"} 2417.0\n'
        'sglang:time_to_first_token_seconds_bucket{le="30.0",model_name="m"} 2513.0\n'
        'sglang:time_to_first_token_seconds_bucket{le="+Inf",model_name="m"} 11008.0\n'
    )
    buckets = {
        float(sample.labels["le"]): sample.value
        for sample in parse(text.encode()).samples
        if sample.name == "sglang:time_to_first_token_seconds_bucket"
    }
    p50 = quantile(buckets, 0.5)
    assert p50 is not None and p50.beyond
    assert f"{p50} s" == "> 30 s"


def test_mt_11_17700_paths_as_labels_are_passed_over() -> None:
    """A page of some 3 MB: the needed families are found in it, however odd the labels of the others."""
    paths = ["/../../etc/passwd", "/${jndi:ldap://localhost}", 'a\\"} 5', "x{y}", "# HELP z", "\\\\", "\u2028"]
    noise = "".join(
        f'http_requests_total{{method="GET",path="{paths[n % 7]}/{n}/{"x" * 120}"}} {n}.0\n' for n in range(17_700)
    )
    page = ("# page\nvllm:num_requests_running 7\n" + noise + "vllm:num_requests_waiting 3\n").encode()
    assert len(page) > 2_500_000
    dialect = engine("vllm").metrics_pages(PoolSpec("p", "vllm"))[0].dialect
    layout = Layout()
    for _ in range(2):
        sample = extract(page, dialect, 0.0, (), layout)
        assert (sample.running, sample.waiting) == (7.0, 3.0)
    part = b"\n".join([*page.split(b"\n")[:1000], b"vllm:num_requests_waiting 3"])  # the exact way takes 20 µs a line
    assert sample == sample_from(parse(part).samples, dialect, 0.0)


TRTLLM = 'request_success_total{engine_type="undefined",finish_reason="stop",model_name="undefined"} 2.0\n'


def test_mt_14_trtllm_has_its_page_elsewhere_and_its_bare_names_count_there_only() -> None:
    assert [page.path for page in engine("trtllm").metrics_pages(PoolSpec("p", "trtllm"))] == ["/prometheus/metrics"]
    found = read("trtllm", "# page\n" + TRTLLM)
    assert isinstance(found, Unreadable), "no gauge: own requests in flight are all there is"
    assert "none of the metric names" in found.reason
    bare = "# page\n" + TRTLLM + "num_requests_running 3\n"
    assert isinstance(read("trtllm", bare), LoadSample)
    pages = search("external")
    said: LoadSample | Ask | Unreadable = pages.begin()
    asked = []
    while isinstance(said, Ask):
        path = pages.pages[said.page].path
        asked.append(path)
        body = bare.encode() if path == "/prometheus/metrics" else b'[{"iter": 1, "cpuMemUsage": 0}]'
        said = pages.answer(said.page, 200, body, 0.0)
    assert isinstance(said, Unreadable) and set(asked) == {"/metrics", "/prometheus/metrics"}
    assert "is JSON, not Prometheus text" in said.reason


@pytest.mark.parametrize("name", ["vllm:prompt_tokens", "vllm:prompt_tokens_total"])
def test_mt_17_counters_with_and_without_their_suffix(name: str) -> None:
    sample = read("vllm", f"# page\n{name} 5000\nvllm:num_requests_running 1\n")
    assert isinstance(sample, LoadSample) and sample.prompt_tokens_total == 5000.0


def test_mt_17_a_rate_of_what_is_not_exported_is_unknown() -> None:
    meter = RateMeter()
    for second in range(5):
        sample = read("vllm", "# page\nvllm:num_requests_running 1\n")
        assert isinstance(sample, LoadSample) and sample.prompt_tokens_total is None
        meter.add(float(second), sample.prompt_tokens_total)
    assert meter.rate() is None


def test_mt_18_json_is_named_and_one_bad_label_costs_one_sample() -> None:
    with pytest.raises(NotExposition, match=r'JSON, not .* begins with .\{"serve_mode":"direct"\}'):
        parse(b'{"serve_mode":"direct"}')
    bad = 'm{job-id="x",sender="y",} 0.97 1566410129000\n'
    sample = read("vllm", "# page\n" + bad + 'vllm:num_requests_running{engine="0",} 4 1566410129000\n')
    assert isinstance(sample, LoadSample) and sample.running == 4.0
