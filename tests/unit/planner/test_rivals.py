"""The layout that is taken is the cheapest after virtual time had its word, not before."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from kilocard.cli.main import app


def planned(words: str, exit_code: int = 0) -> dict[str, Any]:
    found = CliRunner().invoke(app, ["plan", *words.split(), "--json"])
    assert found.exit_code == exit_code, found.exception
    document: dict[str, Any] = json.loads(found.stdout)
    return document


@pytest.mark.parametrize(
    "words",
    [
        "Qwen/Qwen3-VL-2B-Instruct --gpu RTX4060 --rate 0.3 --input 30000 --output 1 --gpus 8",
        "01-ai/Yi-6B --gpu A2-16GB --rate 0.3 --input 4000 --output 10-2000 --quantization int8",
    ],
)
def test_no_alternative_that_carries_the_load_is_much_cheaper(words: str) -> None:
    found = planned(words)
    choice = found["choice"]
    simulated, demand = choice["simulated"], found["demand"]
    assert simulated["ttft_s"]["p95"] <= demand["slo_ttft_s"]
    for each in found["alternatives"]:
        assert not each["enough"] or each["cost_usd_per_hour"] >= 0.8 * choice["cost_usd_per_hour"]


def test_far_too_few_gpus_are_a_plan_that_says_so_and_not_an_error() -> None:
    """So few that no request of the trial is served within the time that it plays."""
    words = (
        "Qwen/Qwen3-VL-4B-Instruct --gpu RTX2080Ti-22GB --rate 3000 --input mean=800,p99=6000 --output 4000 --gpus 1"
    )
    found = planned(words, exit_code=1)
    assert found["choice"]["enough"] is False and found["choice"]["simulated"] is None
    assert "do not carry it" in found["advice"]["warnings"][-1] + found["advice"]["warnings"][0]
