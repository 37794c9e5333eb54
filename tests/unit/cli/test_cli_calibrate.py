"""`kilocard calibrate` on runs of the engine model on virtual time, in the files that `kilocard bench` writes."""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import yaml
from tests.played_runs import played_point, record, write_run
from typer.testing import CliRunner

from kilocard.bench import requests_log
from kilocard.bench.document import TargetSeen
from kilocard.bench.point import ClientHealth, EngineSample, Point
from kilocard.bench.record import RequestRecord
from kilocard.cli.main import app
from kilocard.core.errors import SpecError, UsageError
from kilocard.perf.builtin import CPU_SMOL
from kilocard.perf.profile import Profile
from kilocard.sim.played import Asked, play

TARGET = TargetSeen(
    url="http://127.0.0.1:8000", model="org/SmolLM2-135M", engine="vllm", engine_version="0.32.0", max_num_seqs=8,
    kv_tokens=46_592,
)  # fmt: skip


def point(slots: int, number: int = 0, profile: Profile = CPU_SMOL) -> Point:
    return played_point(slots, profile, number=number)


def run_dir(
    folder: Path, points: list[Point], target: TargetSeen = TARGET, alone: Sequence[RequestRecord] = ()
) -> Path:
    return write_run(folder, points, target, alone)


def calibrate(*arguments: str | Path) -> str:
    found = CliRunner().invoke(app, ["calibrate", *map(str, arguments)], catch_exceptions=False)
    assert found.exit_code == 0
    return found.stdout


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    return run_dir(tmp_path, [point(slots) for slots in (1, 2, 4, 8, 16)])


def test_the_profile_that_is_written_is_the_engine_s(sweep: Path, tmp_path: Path) -> None:
    out = tmp_path / "profile.yaml"
    calibrate(sweep, "--out", out, "--block-size", "128", "--max-model-len", "2048")
    profile = Profile.from_mapping(yaml.safe_load(out.read_text()))
    for name in ("step_fixed_s", "prefill_token_s", "decode_seq_s", "kv_token_s"):
        assert getattr(profile, name) == pytest.approx(getattr(CPU_SMOL, name), rel=0.03), name
    for name in ("kv_tokens", "max_num_seqs", "max_num_batched_tokens", "block_size", "max_model_len", "provenance"):
        assert getattr(profile, name) == getattr(CPU_SMOL, name), name
    assert (profile.engine, profile.engine_version, profile.date) == ("vllm", "0.32.0", "2026-11-30")
    assert profile.name == "SmolLM2-135M"
    assert profile.error is not None
    assert profile.error < 0.03
    assert "attention_s was not fitted: " in out.read_text(), "what it is worth is in the file"


def test_json(sweep: Path, tmp_path: Path) -> None:
    document = json.loads(calibrate(sweep, "--out", tmp_path / "p.yaml", "--json"))
    assert [each["label"] for each in document["points"]][-1] == "16 in flight"
    for each in document["points"]:
        assert each["modelled"]["output_tokens_per_s"] == pytest.approx(
            each["measured"]["output_tokens_per_s"], rel=0.05
        )
    assert {each["name"] for each in document["terms"]} >= {"step_fixed_s", "prefill_token_s", "kv_token_s"}
    assert document["step_error"]["median"] < 0.01


def test_table(sweep: Path, tmp_path: Path) -> None:
    shown = calibrate(sweep, "--out", tmp_path / "p.yaml")
    assert "prefill_token_s" in shown
    assert "1.42 ms" in shown
    assert "16 in flight" in shown


def test_a_point_with_preemptions_or_a_starved_client_is_shown_and_not_fitted(tmp_path: Path) -> None:
    points = [point(slots) for slots in (1, 2, 4, 8, 16)]
    points[3].samples[-1].preemptions = 7
    points[4].client = ClientHealth(limited="no processor")
    document = json.loads(calibrate(run_dir(tmp_path, points), "--out", tmp_path / "p.yaml", "--json"))
    left_out = [each["left_out"] for each in document["points"]]
    assert left_out[:3] == [None] * 3
    assert left_out[3].startswith("7 preemptions")
    assert left_out[4].endswith("no processor")
    assert all(each["modelled"]["output_tokens_per_s"] for each in document["points"])
    document = json.loads(calibrate(tmp_path, "--out", tmp_path / "p.yaml", "--json", "--even-limited"))
    assert [each["left_out"] is None for each in document["points"]] == [True, True, True, False, True]


def test_requests_that_were_sent_alone_are_fitted_too(tmp_path: Path) -> None:
    points = [point(slots) for slots in (1, 2)]
    lengths = [Asked(tokens, 1) for tokens in (50, 100, 200, 400, 800, 1600) for _ in range(3)]
    alone = [record(each, math.inf) for each in play(CPU_SMOL, lengths, concurrency=1)]
    without = json.loads(calibrate(run_dir(tmp_path, points), "--out", tmp_path / "p.yaml", "--json"))
    with_them = json.loads(calibrate(run_dir(tmp_path, points, alone=alone), "--out", tmp_path / "p.yaml", "--json"))
    assert with_them["steps"] == without["steps"] + len(lengths)
    assert with_them["profile"]["prefill_token_s"] == pytest.approx(CPU_SMOL.prefill_token_s, rel=0.01)


def test_slots_are_those_that_were_full(tmp_path: Path) -> None:
    target = TargetSeen(url=TARGET.url, model="m", kv_tokens=46_592)
    folder = run_dir(tmp_path, [point(slots) for slots in (1, 4, 16)], target)
    document = json.loads(calibrate(folder, "--out", tmp_path / "p.yaml", "--json"))
    assert document["profile"]["max_num_seqs"] == 8


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (TargetSeen(url="http://x", model="m", max_num_seqs=8), "--kv-tokens"),
        (TargetSeen(url="http://x", model="m", kv_tokens=46_592), "--max-num-seqs"),
    ],
)
def test_what_the_run_does_not_say_has_to_be_given(tmp_path: Path, target: TargetSeen, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        calibrate(run_dir(tmp_path, [point(1), point(2)], target), "--out", tmp_path / "p.yaml")


def test_tokens_that_come_several_at_a_time_are_refused(tmp_path: Path) -> None:
    coarse = point(2)
    for each in (*coarse.records, *coarse.carried):
        each.gaps_s = array("d", [a + b for a, b in zip(each.gaps_s[::2], each.gaps_s[1::2], strict=False)])
    with pytest.raises(UsageError, match="several at a time"):
        calibrate(run_dir(tmp_path, [coarse]), "--out", tmp_path / "p.yaml")


def test_folders_that_are_no_run(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="kilocard bench"):
        calibrate(tmp_path, "--out", tmp_path / "p.yaml")
    run_dir(tmp_path, [point(1)])
    (tmp_path / "requests.jsonl").write_text('{"schema": "kilocard.requests/1"}\n')
    with pytest.raises(UsageError, match="got an answer"):
        calibrate(tmp_path, "--out", tmp_path / "p.yaml")
    other = requests_log.write([point(1), point(1)])
    (tmp_path / "requests.jsonl").write_bytes(b"".join(other))
    with pytest.raises(UsageError, match="point 1, which"):
        calibrate(tmp_path, "--out", tmp_path / "p.yaml")
    with pytest.raises(UsageError, match="--model and --gpu"):
        calibrate()


def test_without_a_run_the_profile_is_modelled_and_says_so(tmp_path: Path) -> None:
    out = tmp_path / "p.yaml"
    shown = calibrate("--model", "Llama-3.1-8B", "--gpu", "H100-80GB", "--out", out)
    profile = Profile.from_mapping(yaml.safe_load(out.read_text()))
    assert profile.provenance == "modelled"
    assert profile.error is not None
    assert profile.weights_s == pytest.approx(16.06e9 / 3.35e12, rel=0.5)
    assert "modelled, not measured" in shown
    assert "nothing was measured" in out.read_text()


def test_what_the_run_can_not_tell_comes_from_the_roofline(tmp_path: Path) -> None:
    folder = run_dir(tmp_path, [point(slots) for slots in (1, 2, 4)])
    arguments = ("--model", "Llama-3.1-8B", "--gpu", "H100-80GB", "--out", tmp_path / "p.yaml", "--json")
    document = json.loads(calibrate(folder, *arguments))
    terms = {each["name"]: each for each in document["terms"]}
    assert terms["step_fixed_s"]["value_s"] == pytest.approx(0.032, rel=0.05), "what it can tell is measured"
    assert document["profile"]["provenance"] == "measured"
    assert document["profile"]["gpu"] == "H100-80GB"
    assert document["profile"]["kv_tokens"] == 46_592, "what the bench saw, not what the account says"


def test_the_emulator_takes_the_profile(sweep: Path, tmp_path: Path) -> None:
    from kilocard.cli.profile_file import read_profile

    out = tmp_path / "p.yaml"
    calibrate(sweep, "--out", out)
    assert read_profile(str(out)).provenance == "measured"
    with pytest.raises(SpecError):
        Profile.from_mapping({**replace(CPU_SMOL).to_mapping(), "speed": 1})


def test_loads_of_another_run_are_predicted_with_the_room_of_its_engine(sweep: Path, tmp_path: Path) -> None:
    """The other run's engine had 4 slots, which its page did not say: it was seen that 8 requests waited."""
    few = replace(CPU_SMOL, max_num_seqs=4)
    points = [point(slots, 120, few) for slots in (3, 12)]
    points[1].samples = [EngineSample(points[1].started_s, running=4, waiting=8)]
    other = tmp_path / "other"
    other.mkdir()
    run_dir(other, points, msgspec.structs.replace(TARGET, max_num_seqs=None))
    document = json.loads(calibrate(sweep, "--out", tmp_path / "p.yaml", "--check", other, "--json"))
    assert [(each["run"], each["label"]) for each in document["checked"]] == [
        ("other", "3 in flight"), ("other", "12 in flight"),
    ]  # fmt: skip
    for each in document["checked"]:
        for name in ("output_tokens_per_s", "ttft_p50_s", "tpot_p50_s"):
            assert each["modelled"][name] == pytest.approx(each["measured"][name], rel=0.08), (each["label"], name)
    shown = calibrate(sweep, "--out", tmp_path / "p.yaml", "--check", other)
    assert "Loads that were not fitted" in shown and "12 in flight" in shown


def test_a_check_needs_a_run_that_was_fitted(sweep: Path) -> None:
    with pytest.raises(UsageError, match="--check compares with a profile that is fitted"):
        calibrate("--model", "Llama-3.1-8B", "--gpu", "H100-80GB", "--check", sweep)
