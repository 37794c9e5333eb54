"""`vllm bench serve`, out of the virtual environment of the server itself."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.bench_truth.load import Load
from benchmarks.bench_truth.measured import Answered, Measured, means
from benchmarks.bench_truth.server import NAME, Engine, ask


def run(engine: Engine, url: str, load: Load, folder: Path, body: Mapping[str, Any]) -> Measured:
    """`body`: fields that it sends more than its own, or instead of them."""
    argv = [str(engine.vllm), "bench", "serve", "--backend", "openai", "--endpoint", "/v1/completions"]
    argv += ["--base-url", url, "--model", NAME, "--tokenizer", str(engine.model), "--dataset-name", "random"]
    argv += ["--random-input-len", str(load.input), "--random-output-len", str(load.output), "--ignore-eos"]
    argv += ["--random-range-ratio", json.dumps({"input": 0.0, "output": load.spread})]
    requests = load.requests + load.concurrency  # the first of each slot are left out
    argv += ["--max-concurrency", str(load.concurrency), "--num-prompts", str(requests)]
    argv += ["--extra-body", json.dumps(body)]
    # its default seed gives the same prompts in every run, which the server then finds in its prefix cache
    argv += [
        "--seed",
        str(load.seed),
        "--disable-tqdm",
        "--save-result",
        "--save-detailed",
        "--result-dir",
        str(folder),
    ]
    argv += ["--result-filename", "vllm.json"]
    done = ask(argv, {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"})
    if done.returncode != 0:
        raise SystemExit(f"vllm bench serve: exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    said = json.loads((folder / "vllm.json").read_text())
    if said["completed"] != requests:
        raise SystemExit(f"vllm bench serve: {said['completed']} of {requests} requests were answered")
    names = ("start_times", "ttfts", "itls", "input_lens", "output_lens")
    each = [_answered(*values) for values in zip(*(said[name] for name in names), strict=True)]
    return means("vllm bench serve", said["output_throughput"], each, load.concurrency)


def _answered(start: float, ttft: float, gaps: Sequence[float], prompt: int, answer: int) -> Answered:
    """Its TPOT is the time after the first token, which its gaps add up to, over the tokens after it."""
    after = sum(gaps)
    return Answered(start, ttft, after / (answer - 1), ttft + after, prompt, answer)
