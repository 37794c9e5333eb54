"""`vllm bench serve`, out of the virtual environment of the server itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.bench_truth.load import Load
from benchmarks.bench_truth.measured import Measured
from benchmarks.bench_truth.server import NAME, Engine, ask


def run(engine: Engine, url: str, load: Load, folder: Path, body: Mapping[str, Any]) -> Measured:
    """`body`: fields that it sends more than its own, or instead of them."""
    argv = [str(engine.vllm), "bench", "serve", "--backend", "openai", "--endpoint", "/v1/completions"]
    argv += ["--base-url", url, "--model", NAME, "--tokenizer", str(engine.model), "--dataset-name", "random"]
    argv += ["--random-input-len", str(load.input), "--random-output-len", str(load.output), "--ignore-eos"]
    argv += ["--random-range-ratio", json.dumps({"input": 0.0, "output": load.spread})]
    argv += ["--max-concurrency", str(load.concurrency), "--num-prompts", str(load.requests)]
    # as many warm-up requests as kilocard leaves out; its default is one
    argv += ["--num-warmups", str(load.concurrency), "--extra-body", json.dumps(body)]
    # its default seed gives the same prompts in every run, which the server then finds in its prefix cache
    argv += ["--seed", str(load.seed), "--disable-tqdm", "--save-result", "--result-dir", str(folder)]
    argv += ["--result-filename", "vllm.json", "--percentile-metrics", "ttft,tpot,itl,e2el"]
    done = ask(argv, {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"})
    if done.returncode != 0:
        raise SystemExit(f"vllm bench serve: exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    said = json.loads((folder / "vllm.json").read_text())
    if said["completed"] != load.requests:
        raise SystemExit(f"vllm bench serve: {said['completed']} of {load.requests} requests were answered")
    return Measured(
        "vllm bench serve",
        said["completed"],
        said["output_throughput"],
        said["mean_ttft_ms"] / 1e3,
        said["median_ttft_ms"] / 1e3,
        said["mean_tpot_ms"] / 1e3,
        said["mean_e2el_ms"] / 1e3,
        said["total_input_tokens"] / said["completed"],
        said["total_output_tokens"] / said["completed"],
    )
