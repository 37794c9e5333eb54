"""Rules that turn samples into a load: names, sums, copies, filters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kilocard.core.load import LoadSample
from kilocard.metrics.dialect import Dialect
from kilocard.metrics.exact import parse
from kilocard.metrics.fast import extract
from kilocard.metrics.load import kv_block_size, sample_from, says_nothing

FIXTURES = Path(__file__).parents[2] / "fixtures" / "metrics"

VLLM = Dialect(
    running=("vllm:num_requests_running",),
    waiting=("vllm:num_requests_waiting",),
    kv_usage=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    prompt_tokens_total=("vllm:prompt_tokens_total",),
    kv_config=("vllm:cache_config_info", "block_size", "num_gpu_blocks"),
    kv_tokens_label="kv_cache_size_tokens",
    sum_over=("engine",),
)
SGLANG = Dialect(
    running=("sglang:num_running_reqs",),
    waiting=("sglang:num_queue_reqs",),
    kv_usage=("sglang:token_usage",),
    sum_over=("dp_rank",),
    copies_over=("tp_rank", "pp_rank"),
    aggregate=(("priority", ""),),
)

Way = Callable[..., LoadSample]


def exactly(page: str, dialect: Dialect, models: tuple[str, ...] = ()) -> LoadSample:
    return sample_from(parse(page.encode()).samples, dialect, 0.0, models)


def quickly(page: str, dialect: Dialect, models: tuple[str, ...] = ()) -> LoadSample:
    return extract(page.encode(), dialect, 0.0, models)


@pytest.fixture(params=[exactly, quickly])
def load(request: pytest.FixtureRequest) -> Way:
    way: Way = request.param
    return way


def test_data_parallel_engines_are_summed_and_the_fullest_cache_counts(load: Way) -> None:
    # llm-d-router, kthena#1782: last-wins showed one rank of many
    page = """# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="google/gemma-4"} 3.0
vllm:num_requests_running{engine="1",model_name="google/gemma-4"} 1.0
vllm:num_requests_waiting{engine="0",model_name="google/gemma-4"} 0.0
vllm:num_requests_waiting{engine="1",model_name="google/gemma-4"} 2.0
vllm:num_requests_waiting_by_reason{engine="1",model_name="google/gemma-4",reason="capacity"} 2.0
vllm:num_requests_waiting_by_reason{engine="1",model_name="google/gemma-4",reason="deferred"} 0.0
vllm:kv_cache_usage_perc{engine="0",model_name="google/gemma-4"} 0.42
vllm:kv_cache_usage_perc{engine="1",model_name="google/gemma-4"} 0.913
"""
    sample = load(page, VLLM)
    assert (sample.running, sample.waiting, sample.kv_usage) == (4.0, 2.0, 0.913)


@pytest.mark.parametrize("value", ["4294967295", "18446744073709551615.0", "1.8446744073709552e+19", "1e300"])
def test_the_underflow_of_an_unsigned_number_is_no_queue(load: Way, value: str) -> None:
    """It would take the replica out as overheated for as long as the engine says it."""
    sample = load(f"#\nvllm:num_requests_running 3\nvllm:num_requests_waiting {value}\n", VLLM)
    assert (sample.running, sample.waiting) == (3.0, None)


def test_junk_samples_are_skipped_one_by_one(load: Way) -> None:
    page = r"""# composed from lines of public router tests
vllm:num_requests_running{engine="0"} 3.0
vllm:num_requests_running{engine="1"} 1.0
vllm:num_requests_waiting{engine="0",model_name="google/gemma-4"} 0.0
vllm:num_requests_waiting{engine="1",model_name="a \"quoted} name"} 2.0 1712345678
sglang:fwd_occupancy{model_name="m"} NaN
bogus line
vllm:num_requests_waiting{engine="2"} NaN
vllm:num_requests_waiting{engine="3"} -4
vllm:num_requests_waiting{engine="4"} +Inf
"""
    sample = load(page, VLLM)
    assert (sample.running, sample.waiting) == (4.0, 2.0)


def test_the_newer_name_wins_and_the_older_one_is_understood(load: Way) -> None:
    # vllm: gpu_cache_usage_perc until 0.10, kv_cache_usage_perc since 0.9.2
    old, new = 'vllm:gpu_cache_usage_perc{engine="0"} 0.5\n', 'vllm:kv_cache_usage_perc{engine="0"} 0.25\n'
    assert load("#\n" + old, VLLM).kv_usage == 0.5
    assert load("#\n" + old + new, VLLM).kv_usage == 0.25


def test_absent_is_unknown_never_zero(load: Way) -> None:
    sample = load("# nothing of ours\nprocess_open_fds 67.0\n", VLLM)
    assert sample == LoadSample(0.0)
    assert says_nothing(sample)
    assert not says_nothing(load("#\nvllm:num_requests_running 0\n", VLLM))


def test_a_longer_name_is_another_metric(load: Way) -> None:
    assert load("#\nvllm:num_requests_waiting_by_reason 99\nxvllm:num_requests_waiting 7\n", VLLM).waiting is None


@pytest.mark.parametrize("name", ["vllm:prompt_tokens_total", "vllm:prompt_tokens"])
def test_counters_are_found_with_and_without_their_suffix(load: Way, name: str) -> None:
    # kubernetes-sigs/inference-perf#455
    assert load(f'# TYPE vllm:prompt_tokens counter\n{name}{{engine="0"}} 34567503\n', VLLM).prompt_tokens_total == (
        34567503.0
    )


def test_kv_usage_is_a_share(load: Way) -> None:
    assert load("#\nvllm:kv_cache_usage_perc 1.02\n", VLLM).kv_usage == 1.0


def test_tensor_parallel_ranks_are_copies_and_data_parallel_ranks_are_not(load: Way) -> None:
    lines = [
        f'sglang:num_running_reqs{{dp_rank="{dp}",tp_rank="{tp}",pp_rank="0",model_name="m"}} {5 + dp}'
        for dp in range(2)
        for tp in range(4)
    ]
    assert load("#\n" + "\n".join(lines), SGLANG).running == 11.0


def test_the_aggregate_is_taken_where_series_are_split_by_priority(load: Way) -> None:
    page = """# SGLang with priority scheduling
sglang:num_queue_reqs{priority=""} 7
sglang:num_queue_reqs{priority="0"} 4
sglang:num_queue_reqs{priority="10"} 3
sglang:num_running_reqs{model_name="m"} 2
"""
    sample = load(page, SGLANG)
    assert (sample.waiting, sample.running) == (7.0, 2.0)


def test_series_of_other_models_are_left_out_where_ours_is_there(load: Way) -> None:
    page = '#\nvllm:num_requests_running{model_name="a"} 3\nvllm:num_requests_running{model_name="b"} 5\n'
    assert load(page, VLLM, ("b",)).running == 5.0
    assert load(page, VLLM, ("public-name",)).running == 8.0, "an unknown name must not hide the load"
    assert load(page, VLLM).running == 8.0


def test_kv_capacity_is_block_size_times_blocks_summed_over_engines(load: Way) -> None:
    page = """#
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="1000"} 1.0
vllm:cache_config_info{block_size="16",engine="1",num_gpu_blocks="500"} 1.0
vllm:cache_config_info{block_size="16",engine="2",num_gpu_blocks="None"} 1.0
"""
    assert load(page, VLLM).kv_tokens == 24_000.0


def test_kv_capacity_stated_outright_beats_the_product(load: Way) -> None:
    info = 'vllm:cache_config_info{block_size="16",kv_cache_size_tokens="188640",num_gpu_blocks="361"} 1.0\n'
    assert load("#\n" + info, VLLM).kv_tokens == 188_640.0


def test_a_real_vllm_page(load: Way) -> None:
    sample = load((FIXTURES / "vllm_0.32_busy.txt").read_text(), VLLM, ("smol",))
    assert (sample.running, sample.waiting, sample.kv_usage) == (8.0, 24.0, 0.02203856749311295)
    assert (sample.prompt_tokens_total, sample.kv_tokens) == (13568.0, 46592.0)


def test_a_real_sglang_page_of_an_overloaded_server(load: Way) -> None:
    sample = load((FIXTURES / "sglang_overloaded.txt").read_text(), SGLANG)
    assert (sample.running, sample.waiting, sample.kv_usage) == (162.0, 2826.0, 0.28)


def test_series_without_a_model_label_belong_to_every_model(load: Way) -> None:
    page = '#\nvllm:num_requests_running{engine="0"} 2\nvllm:num_requests_running{engine="0",model_name="b"} 5\n'
    assert load(page, VLLM, ("b",)).running == 7.0


def test_a_counter_declared_bare_is_found_with_the_suffix(load: Way) -> None:
    assert load("#\nx_total 5\n", Dialect(preemptions_total=("x",))).preemptions_total == 5.0


def test_the_block_size_is_what_all_engines_state() -> None:
    line = 'vllm:cache_config_info{{block_size="{}",engine="{}",num_gpu_blocks="364"}} 1.0\n'

    def size(*sizes: str) -> int | None:
        page = "".join(line.format(each, place) for place, each in enumerate(sizes))
        return kv_block_size(parse(page.encode()).samples, VLLM)

    assert size("128") == size("128", "128") == 128
    assert size() is size("16", "32") is size("None") is None
    assert kv_block_size(parse(line.format(16, 0).encode()).samples, SGLANG) is None, "no such page is known"
