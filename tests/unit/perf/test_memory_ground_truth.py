"""The memory model against start-up logs of real engines; the table of errors is printed (pytest -s)."""

from __future__ import annotations

import statistics

import pytest
from tests import memory_ground_truth as truth
from tests.ground_truth_errors import Error, table


def within(errors: list[Error], limit: float) -> float:
    return sum(abs(error.relative) <= limit + error.rounding for error in errors) / len(errors)


def test_tokens_follow_from_gib() -> None:
    errors = truth.tokens_from_gib()
    print(table("Tokens from the log's GiB", errors, 0.001, truth.MISSES))
    assert len(errors) >= 70
    assert within(errors, 0.001) >= 0.9


def test_hybrid_models_by_concurrency() -> None:
    errors = truth.concurrency_from_gib()
    print(table("Concurrency of hybrid models", errors, 0.01, truth.MISSES))
    unexplained = [error for error in errors if error.row not in truth.MISSES]
    assert len(unexplained) >= 5
    assert within(unexplained, 0.01) == 1


def test_gib_follow_from_weights() -> None:
    errors = truth.gib_from_weights()
    print(table("KV GiB from the log's weights", errors, 0.3, truth.MISSES, gib=True))
    assert len(errors) >= 48
    assert max(abs(error.absolute) for error in errors) <= 0.3


def test_tokens_follow_from_the_config_alone() -> None:
    errors = truth.tokens_from_config()
    print(table("Tokens from the config alone", errors, 0.02, truth.MISSES))
    assert len(errors) >= 55
    assert statistics.mean(abs(error.relative) for error in errors) <= 0.01
    assert within(errors, 0.05) >= 0.95


def test_weights_follow_from_the_config_alone() -> None:
    errors = [error for error in truth.weights_from_config() if error.row not in {"kv124", "kv125"}]
    assert len(errors) >= 60
    assert within(errors, 0.02) == 1


def test_the_sampler_s_constant_holds_for_models_that_it_was_not_fitted_on() -> None:
    errors = truth.sampler_left_out()
    assert len({error.model for error in errors}) >= 12
    assert max(abs(error.absolute) for error in errors) <= 0.2
    assert statistics.mean(abs(error.absolute) for error in errors) <= 0.05


def test_capacities_of_tensorrt_llm() -> None:
    errors = truth.trtllm_sequences()
    assert len(errors) == 36
    assert within(errors, 0.02) == 1


@pytest.mark.parametrize("row", ["kv080", "kv095", "kv098", "kv101", "kv103", "kv116"])
def test_what_the_engine_refused_is_refused(row: str) -> None:
    assert truth.refused()[row] in {"max_model_len_does_not_fit", "no_room_for_kv"}


def test_every_miss_is_explained() -> None:
    report = truth.report()
    assert "not explained" not in report
