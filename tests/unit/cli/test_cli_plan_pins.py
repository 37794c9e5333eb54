"""What is pinned is kept, said as what it is, and held against what is asked for."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.test_cli_plan import CONFIG, error, plan
from typer.testing import CliRunner

from kilocard.cli.main import app
from kilocard.core.errors import PlanError


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "llama-8b.json"
    path.write_text(json.dumps(CONFIG))
    return str(path)


def why(found: dict[str, Any], flag: str) -> str:
    return next(str(each["why"]) for each in found["advice"]["parameters"] if each["flag"] == flag)


def test_requests_longer_than_the_pinned_length_are_refused_with_both_numbers(model: str) -> None:
    found = error(model, "--gpu", "A100-80GB", "--rate", "1", "--input", "3000", "--max-model-len", "2048")
    assert isinstance(found, PlanError) and found.exit_code == 1
    assert "3,000 tokens in and 256 out" in found.message and "2,048" in found.message


def test_requests_longer_than_a_measured_cache_are_refused(model: str) -> None:
    found = error(model, "--gpu", "A100-80GB", "--rate", "1", "--input", "100000", "--profile", "small-fast")
    assert isinstance(found, PlanError) and "the measured KV cache" in found.message


def test_a_measured_replica_is_played_with_the_length_that_is_planned(model: str) -> None:
    """Its profile says 8,192, the command says more: no request of the trial may be too long."""
    found = plan(model, "--gpu", "A100-80GB", "--rate", "1", "--input", "9000", "--profile", "a100-7b")
    assert found["memory"]["max_model_len"] > 9000
    assert not [each for each in found["advice"]["warnings"] if "too long" in each]


def test_rare_long_requests_are_warned_of(model: str) -> None:
    words = (model, "--gpu", "A100-80GB", "--rate", "1", "--input", "mean=1000,p99=6000", "--max-model-len", "4096")
    assert "max-model-len is 4,096" in " ".join(plan(*words)["advice"]["warnings"])


def test_more_than_the_model_was_made_for_is_said_beside_the_verdict(tmp_path: Path) -> None:
    path = tmp_path / "short.json"
    path.write_text(json.dumps(CONFIG | {"max_position_embeddings": 4096}))
    found = plan(str(path), "--gpu", "A100-80GB", "--rate", "1", "--input", "8000")
    assert "the 4,096 that the model was made for" in " ".join(found["advice"]["warnings"])


def test_a_value_that_nobody_chose_is_not_said_to_be_chosen(model: str) -> None:
    usual = plan(model, "--gpu", "A100-80GB")
    assert why(usual, "gpu-memory-utilization").startswith("the default of the engine")
    assert "room to spare" not in why(usual, "max-model-len")
    assert why(usual, "max-num-seqs").startswith("the default of the engine")
    pinned = plan(model, "--gpu", "A100-80GB", "--rate", "1", "--gpu-memory-utilization", "0.95")
    assert why(pinned, "gpu-memory-utilization").startswith("as given")
    assert "room to spare" in why(pinned, "max-model-len")


def test_a_pinned_block_size_is_in_the_command(model: str) -> None:
    words = (model, "--gpu", "A100-80GB", "--rate", "1", "--block-size", "32")
    assert "--block-size 32" in plan(*words)["choice"]["engine_command"]
    assert "--page-size 32" in plan(*words, "--engine", "sglang")["choice"]["engine_command"]


def test_requests_in_flight_are_not_answered_with_a_word_about_the_rate(model: str) -> None:
    words = (model, "--gpu", "A100-80GB", "--concurrency")
    few, many = plan(*words, "4")["advice"], plan(*words, "5000")["advice"]
    assert "one card carries them" in few["reasons"][0]
    assert "slower than the objective" in many["reasons"][0] and "--slo-ttft" in many["reasons"][0]
    shared = plan(*words, "5000", "--slo-tpot", "0.05")
    assert f"{shared['choice']['replicas']} replicas" in shared["advice"]["reasons"][0]


@pytest.mark.parametrize(("card", "says"), [("V100", "0.10 was built for 7.0"), ("P100", "6")])
def test_a_card_that_the_engine_has_no_code_for_is_named(model: str, card: str, says: str) -> None:
    words = (model, "--gpu", card, "--rate", "1")
    assert any("compute capability" in each and says in each for each in plan(*words)["advice"]["warnings"])
    assert not any("compute capability" in each for each in plan(*words[:2], "T4")["advice"]["warnings"])


def test_an_older_engine_ran_on_a_v100(model: str) -> None:
    found = plan(model, "--gpu", "V100", "--rate", "1", "--engine-version", "0.10")
    assert not any("compute capability" in each for each in found["advice"]["warnings"])


def test_a_config_comes_from_a_pipe_too() -> None:
    read, write = os.pipe()
    os.write(write, json.dumps(CONFIG).encode())
    os.close(write)
    try:
        found = CliRunner().invoke(app, ["plan", f"/dev/fd/{read}", "--gpu", "L4"])
    finally:
        os.close(read)
    assert found.exit_code == 0, found.output


def test_a_config_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "marked.json"
    path.write_text(json.dumps(CONFIG), encoding="utf-8-sig")
    assert plan(str(path), "--gpu", "L4")["choice"]["replicas"] == 1


@pytest.mark.parametrize(("card", "warned"), [("H100-80GB", True), ("A100-80GB", False)])
def test_a_profile_of_another_card_is_said_to_be_one(model: str, tmp_path: Path, card: str, warned: bool) -> None:
    speed = {"step_fixed_s": 0.02, "prefill_token_s": 1e-4, "decode_seq_s": 2e-4, "kv_token_s": 4e-8}
    room = {"kv_tokens": 400_000, "max_num_seqs": 64, "max_num_batched_tokens": 2048}
    path = tmp_path / "profile.yaml"
    path.write_text(json.dumps({"name": "mine", "gpu": "A100-80G", "provenance": "measured", **speed, **room}))
    warnings = plan(model, "--gpu", card, "--rate", "5", "--profile", str(path))["advice"]["warnings"]
    assert any("the profile is of A100-80GB" in each for each in warnings) is warned
