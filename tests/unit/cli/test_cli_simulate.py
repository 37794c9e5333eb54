"""`kilocard simulate` as people and programs call it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kilocard.cli.main import app
from kilocard.core.errors import KilocardError
from kilocard.core.prefix import Prefix
from kilocard.dispatch.events import Arrived, Finished
from kilocard.dispatch.record import to_list
from kilocard.dispatch.replay import Setup, header
from kilocard.routing.registry import POLICIES
from kilocard.spec.model import ModelSpec

EMULATED = """
models: {m: {pool: p}}
pools: {p: {engine: emulated, replicas: 2}}
tenants:
  gold: {keys: ["sha256:0000000000000000000000000000000000000000000000000000000000000001"], weight: 3}
"""
MODELLED = """
models: {qwen: {pool: qwen-a100}}
pools:
  qwen-a100:
    engine: vllm
    model: Qwen/Qwen2.5-7B-Instruct
    args: {max-model-len: 16384, max-num-seqs: 32}
    gpus: {type: A100-80G}
    replicas: 2
"""
LOAD = ("--rate", "20", "--input", "200", "--output", "40", "--duration", "10s")


@pytest.fixture
def emulated(tmp_path: Path) -> str:
    path = tmp_path / "cluster.yaml"
    path.write_text(EMULATED)
    return str(path)


def simulate(*words: str) -> dict[str, Any]:
    found = CliRunner().invoke(app, ["simulate", *words, "--json"])
    assert found.exit_code == 0, found.output
    document: dict[str, Any] = json.loads(found.stdout)
    return document


def error(*words: str) -> KilocardError:
    found = CliRunner().invoke(app, ["simulate", *words])
    assert isinstance(found.exception, KilocardError), found.output
    return found.exception


def test_the_document_has_what_is_promised(emulated: str) -> None:
    found = simulate(emulated, *LOAD)
    assert {"wall_seconds", "requests", "replicas", "policies"} <= set(found)
    assert found["replicas"] == 2
    (one,) = found["policies"].values()
    assert {"completed", "rejected", "output_tokens_per_s", "ttft_s", "tpot_s", "e2e_s", "goodput", "gpu_hours",
            "preemptions", "prefix_hit_share"} <= set(one)  # fmt: skip
    for latency in ("ttft_s", "tpot_s", "e2e_s"):
        assert {"p50", "p95", "p99"} <= set(one[latency])
    assert one["completed"] == found["requests"] > 100


def test_all_policies_get_the_same_arrivals_and_the_same_seed_gives_the_same_document(emulated: str) -> None:
    one, two = (simulate(emulated, *LOAD, "--policy", "all", "--gateways", "2") for _ in range(2))
    assert set(one["policies"]) == set(POLICIES)
    assert len({each["completed"] for each in one["policies"].values()}) == 1
    for document in (one, two):
        del document["wall_seconds"]
    assert one == two
    assert simulate(emulated, *LOAD, "--seed", "1")["requests"] != one["requests"]


def test_a_pools_gpu_and_model_give_its_speed_and_the_document_says_so(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(MODELLED)
    found = simulate(str(path), *LOAD, "--replicas", "3")
    pool = found["pools"]["qwen-a100"]
    assert pool["replicas"] == found["replicas"] == 3
    assert pool["speed"].startswith("modelled: Qwen/Qwen2.5-7B-Instruct on A100-80GB")
    assert pool["profile"]["max_num_seqs"] == 32
    assert found["policies"]["queue_depth"]["gpu_hours"] > 0
    measured = simulate(str(path), *LOAD, "--profile", "qwen-a100=a100-7b")["pools"]["qwen-a100"]
    assert measured["profile"]["name"] == "a100-7b"


def test_a_trace_is_played_and_scaled(emulated: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    lines = [
        {"timestamp": 500 * n, "input_length": 600, "output_length": 20, "hash_ids": [1, n + 2]} for n in range(40)
    ]
    trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
    once = simulate(emulated, "--trace", str(trace))
    assert once["requests"] == 40
    assert once["policies"]["queue_depth"]["prefix_hit_share"] > 0.5
    assert simulate(emulated, "--trace", str(trace), "--scale", "3")["requests"] == 120
    assert simulate(emulated, "--trace", str(trace), "--duration", "10s")["requests"] == 20


def test_tables_and_files_for_people(emulated: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    found = CliRunner().invoke(
        app, ["simulate", emulated, *LOAD, "--fault", "crash p-0 at=3 restart=1", "--out", str(out)]
    )
    assert found.exit_code == 0, found.output
    assert "queue_depth" in found.output
    assert json.loads((out / "simulation.json").read_text())["faults"] == ["crash p-0 at=3 restart=1"]
    page = (out / "report.html").read_text()
    assert page.count("<svg") == 9
    assert "crash p-0 at=3 restart=1" in page


def test_without_a_known_speed_it_says_what_to_give(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("pools: {p: {engine: vllm, model: Qwen/Qwen2.5-7B-Instruct}}\n")
    found = error(str(path), *LOAD)
    assert found.exit_code == 2
    assert "--profile p=FILE" in found.message


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ((), "--rate"),
        (("--rate", "5", "--scale", "2"), "--scale"),
        ((*LOAD, "--policy", "best"), "there is no 'best'"),
        ((*LOAD, "--replicas", "q=3"), "no pool 'q'"),
        ((*LOAD, "--replicas", "none"), "whole number"),
        ((*LOAD, "--gateways", "0"), "gateways"),
        ((*LOAD, "--fault", "melt p-0"), "melt"),
        (("--rate", "-1"), "above 0"),
        (("--trace", "nowhere.jsonl"), "nowhere.jsonl"),
    ],
)
def test_a_wrong_command_line_says_what_is_wrong(emulated: str, words: tuple[str, ...], part: str) -> None:
    found = error(emulated, *words)
    assert found.exit_code == 2
    assert part in found.message


def decision_log(path: Path, seed: int, at: float, requests: int) -> str:
    setup = Setup({"m": ModelSpec("m", {"p": 1})}, {}, seed, 1.0)
    lines: list[Any] = [header(setup, "test", at, 0.0)]
    for n in range(1, requests + 1):
        prefix = Prefix(1000, (n % 2 + 1, n % 2 + 3, n % 2 + 5), 9)
        lines.append([to_list(Arrived(n * 1.0, n, "m", 1000, 50, n + 100.0, prefix=prefix))])
        lines.append([to_list(Finished(n + 0.5, n, 200, 20))])
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '[["tick",')
    return str(path)


def test_decision_logs_of_several_gateways_are_one_workload(emulated: str, tmp_path: Path) -> None:
    """What if one more replica, and prefix_affinity: on the traffic of two gateways, one of which was killed."""
    first = decision_log(tmp_path / "one.jsonl", 1, 1000.0, 20)
    second = decision_log(tmp_path / "two.jsonl", 2, 1010.0, 30)
    found = simulate(emulated, "--trace", first, "--trace", second, "--policy", "queue_depth,prefix_affinity",
                     "--replicas", "3")  # fmt: skip
    assert found["requests"] == 50
    assert found["workload"]["span_s"] == 39.0
    assert found["workload"]["prefix_share"] > 0.6
    assert found["policies"]["prefix_affinity"]["prefix_hit_share"] > 0.6
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"timestamp": 0, "input_length": 10, "output_length": 2}\n')
    refused = error(emulated, "--trace", first, "--trace", str(trace))
    assert refused.exit_code == 2 and "decision logs" in refused.message


@pytest.mark.parametrize(
    "words",
    [
        ("--rate", "1e12", "--duration", "1s"),
        ("--rate", "5", "--duration", "1000000d"),
        (*LOAD, "--replicas", "99999999999"),
        (*LOAD, "--gateways", "1000000000"),
        (*LOAD, "--fault", "start p at=1 replicas=100000000"),
    ],
)
def test_what_no_machine_could_hold_is_refused_at_once(emulated: str, words: tuple[str, ...]) -> None:
    assert error(emulated, *words).exit_code == 2


def trace(folder: Path, *milliseconds: int) -> str:
    path = folder / "trace.jsonl"
    rows = ({"timestamp": at, "input_length": 100, "output_length": 10, "hash_ids": [1]} for at in milliseconds)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_a_trace_that_goes_on_for_ages_is_refused(tmp_path: Path, emulated: str) -> None:
    there = trace(tmp_path, 0, 10**15)
    assert "--duration" in error(emulated, "--trace", there).message
    assert simulate(emulated, "--trace", there, "--duration", "60s")["requests"] == 1


@pytest.mark.parametrize("count", ["0", "-2"])
def test_a_number_of_requests_is_one_or_more(tmp_path: Path, emulated: str, count: str) -> None:
    for load in (("--trace", trace(tmp_path, 0, 1000)), LOAD):
        assert "--requests" in error(emulated, *load, "--requests", count).message


def test_a_short_load_that_takes_long_is_not_looked_at_thousands_of_times(tmp_path: Path, emulated: str) -> None:
    """One request, and 50 s until somebody can answer it."""
    faults = ("--fault", "crash p-0 at=0", "--fault", "crash p-1 at=0", "--load-time", "50s")
    [found] = simulate(emulated, "--trace", trace(tmp_path, 0), *faults)["policies"].values()
    assert found["completed"] == 1 and found["e2e_s"]["p50"] > 50
    assert 100 < len(found["over_time"]) < 600


def test_times_since_1970_begin_with_the_first_request(tmp_path: Path, emulated: str) -> None:
    there = trace(tmp_path, 1_700_000_000_000, 1_700_000_001_000)
    found = simulate(emulated, "--trace", there)
    assert (found["requests"], found["workload"]["span_s"]) == (2, pytest.approx(1.0))


def test_a_fault_of_a_replica_that_never_is_there_is_an_error(emulated: str) -> None:
    assert "there are p-0, p-1" in error(emulated, *LOAD, "--fault", "crash p-2 at=1").message
    assert simulate(emulated, *LOAD, "--fault", "crash p-2 at=9", "--fault", "start p at=0", "--load-time", "1s")


def test_a_trace_of_one_moment_is_superposed_at_that_moment(tmp_path: Path, emulated: str) -> None:
    assert simulate(emulated, "--trace", trace(tmp_path, 0, 0), "--scale", "3")["requests"] == 6
    assert "at one moment" in error(emulated, "--trace", trace(tmp_path, 0, 0), "--rate", "3").message


@pytest.mark.parametrize(
    ("content", "part"),
    [("", "nothing is in it"), ('{"timestamp": 1}\n', "line 1: input_length"), ("what,is,this\n", "line 1: neither")],
)
def test_what_is_wrong_in_a_trace_comes_with_its_name(tmp_path: Path, emulated: str, content: str, part: str) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(content)
    message = error(emulated, "--trace", str(path)).message
    assert message.startswith(f"--trace {path}: ") and part in message


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--scrape", "1us"), "0.001 s at least"),
        (("--scrape", "0"), "0.001 s at least"),
        (("--scaling",), "no pool has `scaling`"),
        (("--replicas", "2", "--replicas", "3"), "2 and 3"),
        (("--replicas", "p=2,p=3"), "has 2 already"),
        (("--replicas", "p="), "of pool p"),
        (("--fault", "slow p-0 factor=2s"), "factor=2s is no number"),
        (("--fault", "crash p-0 at=soon"), "at=soon"),
    ],
)
def test_what_would_not_end_or_would_be_ignored_is_refused(emulated: str, words: tuple[str, ...], part: str) -> None:
    found = error(emulated, *LOAD, *words)
    assert found.exit_code == 2
    assert part in found.message


@pytest.mark.parametrize("option", ["--input", "--output"])
def test_a_wrong_length_says_of_what(emulated: str, option: str) -> None:
    assert error(emulated, "--rate", "5", option, "1k").message.startswith(f"{option}: ")


def test_a_rate_beyond_all_measure_is_a_slip(emulated: str) -> None:
    assert "at most" in error(emulated, "--rate", "1e308", "--requests", "3").message


def test_faults_take_times_with_units(emulated: str) -> None:
    plain, unit = (
        simulate(emulated, *LOAD, "--fault", f"crash p-0 at={at} restart={restart}")["policies"]
        for at, restart in (("2", "60"), ("2000ms", "1m"))
    )
    assert plain == unit
