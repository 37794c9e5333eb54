"""`kilocard plan` as people and programs call it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from kilocard.cli.main import app
from kilocard.core.errors import KilocardError, PlanError, SpecError, UsageError
from kilocard.spec.load import load

TOPOLOGY = Path(__file__).parents[2] / "fixtures" / "topology" / "topo_3x_h100nvl_pair_plus_one.txt"

#: a model of Llama-3.1-8B's shape
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}


@pytest.fixture
def model(tmp_path: Path) -> str:
    folder = tmp_path / "llama-8b"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return str(folder)


def plan(*words: str, exit_code: int = 0) -> dict[str, Any]:
    found = CliRunner().invoke(app, ["plan", *words, "--json"])
    if isinstance(found.exception, KilocardError):  # main() makes the exit code of it
        assert found.exception.exit_code == exit_code, found.exception
    else:
        assert found.exit_code == exit_code, found.output
    document: dict[str, Any] = json.loads(found.stdout)
    return document


def error(*words: str) -> KilocardError:
    found = CliRunner().invoke(app, ["plan", *words])
    assert isinstance(found.exception, KilocardError), found.output
    return found.exception


def test_the_document_has_what_is_promised(model: str) -> None:
    found = plan(model, "--gpu", "A100-80GB", "--rate", "10", "--input", "500", "--output", "300")
    assert {"model", "gpu", "memory", "choice", "alternatives", "advice", "provenance"} <= set(found)
    promised = {"weights_gib_per_gpu", "kv_gib_per_gpu", "kv_tokens", "kv_blocks", "max_concurrency", "max_model_len"}
    assert promised <= set(found["memory"])
    choice = found["choice"]
    assert {"tensor", "pipeline", "replicas", "engine_command", "expected"} <= set(choice)
    assert {"output_tokens_per_s", "ttft_s", "tpot_s"} <= set(choice["expected"])
    assert choice["expected"]["output_tokens_per_s"] == pytest.approx(3000, rel=0.01)
    assert choice["engine_command"].startswith(f"vllm serve {model} ")
    assert found["advice"]["verdict"] and found["advice"]["reasons"]
    assert found["provenance"]["speed"] == "modelled"
    assert choice["simulated"]["ttft_s"]["p95"] <= 2.0
    assert len(found["alternatives"]) == 3


def test_pins_are_kept_and_defaults_are_the_engines(model: str) -> None:
    pinned = plan(
        model, "--gpu", "h100-80gb", "--tensor", "2", "--pipeline", "1", "--gpu-memory-utilization", "0.85",
        "--max-model-len", "16384", "--max-num-seqs", "64", "--dtype", "float16", "--quantization", "fp8",
        "--kv-cache-dtype", "fp8", "--engine-version", "0.19.0", "--gpu-memory-gib", "79.0",
    )  # fmt: skip
    assert (pinned["choice"]["tensor"], pinned["choice"]["pipeline"]) == (2, 1)
    memory = pinned["memory"]
    assert (memory["gpu_gib"], memory["utilization"], memory["max_model_len"]) == (79.0, 0.85, 16384)
    assert memory["max_num_seqs"] == 64 and memory["weights_gib_per_gpu"] < 5
    for words in ("--tensor-parallel-size 2", "--max-num-seqs 64", "--kv-cache-dtype fp8", "--quantization fp8"):
        assert words in pinned["choice"]["engine_command"]
    usual = plan(model, "--gpu", "H100-80GB", "--tensor", "1", "--engine-version", "0.19.0")["memory"]
    assert (usual["utilization"], usual["max_num_seqs"], usual["max_model_len"]) == (0.9, 1024, 131072)


def test_a_concurrency_is_answered_for_one_replica(model: str) -> None:
    words = (model, "--gpu", "H100-80GB", "--tensor", "1", "--input", "1024", "--output", "128", "--concurrency")
    few, many = plan(*words, "4")["choice"], plan(*words, "64")["choice"]
    assert few["replicas"] == many["replicas"] == 1
    assert few["expected"]["tpot_s"] < many["expected"]["tpot_s"]
    assert few["expected"]["output_tokens_per_s"] < many["expected"]["output_tokens_per_s"]
    assert many["simulated"] is None


def test_only_a_gpu_gives_memory_and_one_replica(model: str) -> None:
    found = plan(model, "--gpu", "RTX3090-24GB")
    assert found["choice"]["replicas"] == 1
    assert found["choice"]["expected"]["output_tokens_per_s"] > 0
    # 131,072 tokens do not fit: the longest that does is taken, since the command has to start
    assert found["memory"]["max_model_len"] < 131072
    assert f"--max-model-len {found['memory']['max_model_len']}" in found["choice"]["engine_command"]


def test_what_is_written_is_a_cluster_file(model: str, tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    found = plan(model, "--gpu", "A100-80GB", "--rate", "30", "--output", "400", "--write", str(path))
    spec = load(path)
    [pool] = spec.pools.values()
    assert pool.model == model and pool.gpus is not None and pool.gpus.type == "A100-80GB"
    assert pool.replicas.min == min(8, found["choice"]["replicas"])
    assert list(spec.models) == ["llama-8b"]
    assert yaml.safe_load(path.read_text())["pools"]["llama-8b"]["args"]["max-num-seqs"] >= 16


def test_errors_and_what_they_mean_in_replicas_are_in_the_file_and_in_the_document(model: str, tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    found = plan(model, "--gpu", "A100-80GB", "--rate", "30", "--output", "400", "--write", str(path))
    provenance, replicas = found["provenance"], found["choice"]["replicas"]
    assert 0 < provenance["speed_error"] <= provenance["speed_error_p90"]
    within = provenance["replicas_within"]
    assert within["p90"][0] <= within["median"][0] <= replicas <= within["median"][1] <= within["p90"][1]
    first = path.read_text().splitlines()[0]
    assert first.startswith(f"# Planned with speed modelled: {replicas} replica")
    assert "within the 90th percentile's" in first


def test_the_page_says_what_to_run_why_and_what_would_change_it(model: str) -> None:
    found = CliRunner().invoke(app, ["plan", model, "--gpu", "A100-80GB", "--rate", "10", "--output", "300"])
    assert found.exit_code == 0
    for heading in (
        "What to run", "What to expect", "Memory of one GPU", "Why these arguments", "What else there is",
        "What would change the answer", "Where the numbers come from", "How it grows",
    ):  # fmt: skip
        assert heading in found.stdout
    assert "vllm serve" in found.stdout and "T_target / T_0" in found.stdout and "modelled" in found.stdout


def test_dp_15_a_topology_decides_which_gpus(model: str) -> None:
    found = plan(model, "--gpu", "H100-NVL-94GB", "--topology", str(TOPOLOGY), "--tensor", "2")
    by_size = {each["tensor"]: each for each in found["placement"]}
    assert by_size[2]["chosen"] and by_size[2]["groups"] == [{"gpus": [0, 1], "link": "NV12"}]
    assert by_size[2]["left_over"] == [2]
    assert "32 attention heads" in by_size[3]["refused"]
    assert found["choice"]["link"] == "nvlink"


def test_what_can_not_be_exits_1_with_every_reason(tmp_path: Path) -> None:
    big = tmp_path / "config.json"
    big.write_text(json.dumps(CONFIG | {"hidden_size": 8192, "num_hidden_layers": 80, "intermediate_size": 28672}))
    found = plan(str(big), "--gpu", "RTX3090-24GB", "--gpus", "2", exit_code=1)
    assert found["choice"] is None and found["advice"]["verdict"] == "impossible"
    assert {each["tensor"] for each in found["refused"]} >= {1, 2}
    assert all("KV" in each["reason"] for each in found["refused"])
    refused = error(str(big), "--gpu", "RTX3090-24GB", "--gpus", "2")
    assert isinstance(refused, PlanError) and "RTX3090-24GB TP1" in refused.message
    three = error(str(big), "--gpu", "H100-80GB", "--tensor", "3")
    assert "not divisible by 3" in three.message


def test_too_few_gpus_for_the_load_exits_1_and_says_how_much_they_take(model: str) -> None:
    found = plan(model, "--gpu", "RTX3090-24GB", "--gpus", "1", "--rate", "50", exit_code=1)
    assert found["choice"]["enough"] is False
    assert "of 50" in found["advice"]["warnings"][0]
    assert found["advice"]["verdict"] == "cluster" and "carries it" not in found["advice"]["reasons"][0]


@pytest.mark.parametrize(
    ("words", "kind", "says"),
    [
        (("--gpu", "GTX-1"), UsageError, "not in the catalogue"),
        (("--gpu", "H100", "--rate", "-1"), UsageError, "--rate"),
        (("--gpu", "H100", "--rate", "1", "--concurrency", "2"), UsageError, "one of them"),
        (("--gpu", "H100", "--rate", "1", "--input", "many"), UsageError, "many"),
        (("--gpu", "H100", "--headroom", "1.5"), UsageError, "--headroom"),
        (("--gpu", "H100", "--profile", "no-such-file"), UsageError, "no-such-file"),
        (("--gpu", "H100", "--topology", "no-such-file"), UsageError, "no-such-file"),
        (("--gpu", "H100", "--link", "wifi"), UsageError, "nvlink, pcie"),
        (("--gpu", "H100", "--gpu-memory-utilization", "0"), UsageError, "--gpu-memory-utilization 0"),
        (("--gpu", "H100", "--gpus-per-node", "0"), UsageError, "--gpus-per-node 0"),
        (("--gpu", "H100", "--engine", "no-such"), UsageError, "vllm, sglang, trtllm"),
    ],
)
def test_bad_input_exits_2_and_says_where(
    model: str, words: tuple[str, ...], kind: type[KilocardError], says: str
) -> None:
    found = error(model, *words)
    assert isinstance(found, kind) and found.exit_code == 2 and says in found.message


def test_a_broken_config_lists_its_problems(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"architectures": ["LlamaForCausalLM"], "vocab_size": 1000}))
    found = error(str(path), "--gpu", "H100")
    assert isinstance(found, SpecError) and "hidden_size" in found.message


def test_other_engines_get_their_own_flags(model: str) -> None:
    words = (model, "--gpu", "H100-80GB", "--rate", "5", "--engine")
    assert "--mem-fraction-static" in plan(*words, "sglang")["choice"]["engine_command"]
    assert "--max_seq_len" in plan(*words, "trtllm")["choice"]["engine_command"]
