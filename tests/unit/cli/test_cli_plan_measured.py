"""R8: 20 requests/s of 500 tokens on replicas of 1,000 to 1,200 tokens/s, however somebody says what they make."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.played_runs import played_point, write_run
from typer.testing import CliRunner

from kilocard.bench.document import TargetSeen
from kilocard.cli.main import app
from kilocard.perf.builtin import A100_7B
from kilocard.perf.operating_point import capacity
from kilocard.perf.profile import Profile
from kilocard.planner.settle import faster

MODEL = "Qwen/Qwen2.5-7B-Instruct"
#: output tokens/s that the built-in example makes
EXAMPLE = capacity(A100_7B, 128, 500).output_tokens_per_s


def plan(*words: str) -> dict[str, Any]:
    found = CliRunner().invoke(
        app,
        ["plan", MODEL, "--gpu", "A100-80G", "--rate", "20", "--input", "128", "--output", "500", *words, "--json"],
        catch_exceptions=False,
    )
    assert found.exit_code == 0, found.output
    document: dict[str, Any] = json.loads(found.stdout)
    return document


def measured(tokens_per_s: float, **other: Any) -> Profile:
    return replace(faster(A100_7B, tokens_per_s / EXAMPLE - 1), provenance="measured", error=0.02, **other)


def written(path: Path, values: dict[str, Any]) -> str:
    path.write_text(json.dumps(values) if path.suffix == ".json" else yaml.safe_dump(values))
    return str(path)


@pytest.mark.parametrize(("tokens_per_s", "replicas"), [(992, 10), (1000, 10), (1053, 10), (1100, 10), (1200, 9)])
def test_a_profile_of_1000_to_1200_tokens_takes_8_to_10_replicas(
    tokens_per_s: float, replicas: int, tmp_path: Path
) -> None:
    found = plan("--profile", written(tmp_path / "p.yaml", measured(tokens_per_s).to_mapping()))
    assert found["choice"]["replicas"] == replicas
    assert found["provenance"]["speed"] == "measured"
    assert found["choice"]["expected"]["ttft_s"] < 2 and found["choice"]["expected"]["tpot_s"] < 0.04
    assert found["demand"]["scaling_efficiency"] is None  # nothing is taken off: virtual time played it


@pytest.mark.parametrize("tokens_per_s", [1000, 1200])
def test_a_load_test_of_such_a_replica_calibrated(tokens_per_s: int, tmp_path: Path) -> None:
    engine = measured(tokens_per_s)
    lengths: dict[str, Any] = {"inputs": (100, 156), "outputs": (400, 600)}
    target = TargetSeen(url="http://127.0.0.1:8000", model=MODEL, max_num_seqs=32, kv_tokens=engine.kv_tokens)
    run = write_run(tmp_path, [played_point(slots, engine, **lengths) for slots in (1, 8, 32)], target)
    found = CliRunner().invoke(app, ["calibrate", str(run), "--out", str(run / "p.yaml")], catch_exceptions=False)
    assert found.exit_code == 0
    planned = plan("--profile", str(run / "p.yaml"))
    assert planned["choice"]["capacity"]["output_tokens_per_s"] == pytest.approx(tokens_per_s, rel=0.005)
    assert 8 <= planned["choice"]["replicas"] <= 10


def test_a_built_in_example_and_numbers_of_your_own_are_taken_as_given(tmp_path: Path) -> None:
    own = {key: value for key, value in measured(1040).to_mapping().items() if key not in {"provenance", "error"}}
    assert plan("--profile", "a100-7b")["choice"]["replicas"] == 10
    assert plan("--profile", written(tmp_path / "own.json", own))["choice"]["replicas"] == 10


def test_a_roofline_in_a_file_is_no_measurement(tmp_path: Path) -> None:
    roofline = replace(measured(1100), provenance="modelled", error=0.12)
    found = plan("--profile", written(tmp_path / "p.yaml", roofline.to_mapping()))
    assert found["choice"]["replicas"] == 13
    assert (found["demand"]["headroom"], found["demand"]["scaling_efficiency"]) == (0.75, 0.95)
    assert any(line.startswith("speed, which is modelled") for line in found["advice"]["changes"])


def test_what_somebody_states_is_applied_as_stated(tmp_path: Path) -> None:
    profile = written(tmp_path / "p.yaml", measured(1000).to_mapping())
    assert plan("--profile", profile, "--scaling-efficiency", "0.95")["choice"]["replicas"] == 11
    assert plan("--profile", profile, "--headroom", "0.8")["choice"]["replicas"] == 13


def test_full_replicas_are_called_full_and_the_next_number_is_named(tmp_path: Path) -> None:
    advice = plan("--profile", written(tmp_path / "p.yaml", measured(1000).to_mapping()))["advice"]
    assert any(
        "takes 100% of the replicas' limit" in each and "11 replicas run at 91%" in each for each in advice["warnings"]
    )
    assert any("5% lost between replicas" in each and "11 replicas" in each for each in advice["changes"])
    roomy = plan("--profile", written(tmp_path / "p.yaml", measured(1100).to_mapping()))["advice"]
    assert not any("limit. Virtual time" in each for each in roomy["warnings"])
    assert any(each.startswith("more than 9% lost between replicas") for each in roomy["changes"])
