"""Profiles: the step's arithmetic, what is refused, and that the built-in ones say what they promise."""

from __future__ import annotations

from typing import Any

import pytest

from kilocard.core.errors import SpecError
from kilocard.perf.builtin import A100_7B, BUILTIN, builtin
from kilocard.perf.profile import Profile

PLAIN: dict[str, Any] = {
    "name": "p",
    "step_fixed_s": 0.01,
    "prefill_token_s": 0.0001,
    "decode_seq_s": 0.001,
    "kv_token_s": 0.000001,
    "kv_tokens": 1000,
    "max_num_seqs": 4,
    "max_num_batched_tokens": 512,
}


def test_a_step_is_the_sum_of_its_parts() -> None:
    profile = Profile.from_mapping(PLAIN)
    assert profile.step_s(0, 0, 0) == 0.01
    assert profile.step_s(100, 2, 1000) == pytest.approx(0.01 + 0.01 + 0.002 + 0.001)
    assert profile.kv_blocks == 62


def test_weights_are_read_while_the_products_run() -> None:
    """The roofline: a step takes the longer of the two, and the rest on top."""
    profile = Profile.from_mapping({**PLAIN, "weights_s": 0.05, "sequence_s": 0.0001, "attention_s": 1e-8})
    assert profile.step_s(0, 2, 0) == pytest.approx(0.01 + 0.05 + 2 * 0.0001)
    assert profile.step_s(1000, 2, 0) == pytest.approx(0.01 + 1000 * 0.0001 + 2 * 0.001 + 2 * 0.0001)
    assert profile.step_s(0, 0, 0, attended=1e6) == pytest.approx(0.01 + 0.05 + 0.01)


def test_a_small_batch_touches_few_experts() -> None:
    profile = Profile.from_mapping({**PLAIN, "experts_s": 0.1, "expert_share": 0.25, "decode_seq_s": 0})
    assert profile.step_s(0, 1, 0) == pytest.approx(0.01 + 0.1 * 0.25)
    assert profile.step_s(0, 2, 0) == pytest.approx(0.01 + 0.1 * (1 - 0.75**2))
    assert profile.step_s(0, 100, 0) == pytest.approx(0.01 + 0.1)


def test_an_old_profile_file_is_the_linear_model_still() -> None:
    profile = Profile.from_mapping(PLAIN)
    assert profile.step_s(100, 2, 1000, attended=1e9) == profile.step_s(100, 2, 1000)
    assert (profile.engine, profile.error) == ("", None)


def test_a_mapping_goes_there_and_back() -> None:
    for profile in BUILTIN.values():
        assert Profile.from_mapping(profile.to_mapping()) == profile


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"step_fixed_s": -1}, "profile.step_fixed_s: -1 is not a time"),
        ({"step_fixed_s": 0}, "would never end"),
        ({"kv_token_s": float("nan")}, "profile.kv_token_s"),
        ({"kv_tokens": 1.5}, "profile.kv_tokens"),
        ({"kv_tokens": 16}, "less than two blocks"),
        ({"max_num_seqs": True}, "profile.max_num_seqs"),
        ({"provenance": "guessed"}, "none of modelled, measured"),
        ({"name": ""}, "profile.name"),
        ({"expert_share": 0}, "profile.expert_share: 0 is not a share"),
        ({"steps_ahead": -1}, "profile.steps_ahead: -1 is not a number of steps"),
        ({"weights_s": "fast"}, "profile.weights_s: 'fast' is not a time"),
        ({"error": -0.1}, "profile.error: -0.1 is not a relative error"),
        ({"date": 20261130}, "profile.date: 20261130 is not a text"),
        ({"stepfixed": 1}, "profile.stepfixed: unknown key"),
    ],
)
def test_what_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        Profile.from_mapping({**PLAIN, **change})


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(SpecError) as caught:
        Profile.from_mapping({"name": "p", "kv_tokens": 0, "colour": "red"})
    text = str(caught.value)
    assert "colour" in text
    assert "profile.kv_tokens" in text
    assert "profile.step_fixed_s: missing" in text
    assert "block_size: missing" not in text  # it has a default


def test_the_articles_replica_gives_what_the_article_says() -> None:
    """32 streams of 500 tokens: 1,000 to 1,200 output tokens a second (R8)."""
    step = A100_7B.step_s(0, 32, 32 * (200 + 250))
    assert 0.025 <= step <= 0.030
    assert 1000 <= 32 / step <= 1200


def test_an_unknown_name_lists_the_known_ones() -> None:
    assert builtin("a100-7b") is A100_7B
    with pytest.raises(SpecError, match="small-fast, a100-7b, cpu-smol"):
        builtin("h100")


@pytest.mark.parametrize(("text", "number"), [("4e-08", 4e-8), ("4E-8", 4e-8), ("1.5e-6", 1.5e-6)])
def test_a_power_of_ten_is_a_number_though_yaml_takes_it_for_text(text: str, number: float) -> None:
    assert Profile.from_mapping(A100_7B.to_mapping() | {"kv_token_s": text}).kv_token_s == number
