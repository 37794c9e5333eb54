"""GuideLLM, in a virtual environment of its own, made on first use. Tried with 0.8.1."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.bench_truth.load import Load
from benchmarks.bench_truth.measured import Answered, Lost, Measured, means
from benchmarks.bench_truth.server import NAME, Engine, ask


def install(engine: Engine, cache: Path) -> Path:
    """Its program. Raises SystemExit when it can't be installed."""
    home = cache / "guidellm"
    program = home / "bin" / "guidellm"
    if not program.exists():
        print(f"installing GuideLLM into {home} …", file=sys.stderr)
        # The engine's torch, which runs without a GPU: the one that GuideLLM would fetch brings gigabytes of CUDA.
        version = "import importlib.metadata as m; print(m.version('torch'))"
        torch = subprocess.run([str(engine.python), "-c", version], capture_output=True, text=True, check=True).stdout
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        pip = [str(home / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "-q"]
        if subprocess.run([*pip, f"torch=={torch.strip()}", "guidellm"]).returncode != 0:
            raise SystemExit("pip could not install GuideLLM: see above; `--tools kilocard,vllm` does without it")
    return program


def run(program: Path, engine: Engine, url: str, load: Load, folder: Path, body: Mapping[str, Any]) -> Measured:
    """`body`: fields that it sends more than its own, or instead of them."""
    out = folder / "guidellm.json"
    out.unlink(missing_ok=True)
    argv = [str(program), "run", "--disable-console"]
    backend = {"kind": "openai_http", "target": url, "model": NAME, "request_format": "/v1/completions", "http2": False}
    argv += ["--backend", json.dumps({**backend, "extras": {"body": body}} if body else backend)]
    argv += ["--tokenizer", f"kind=hf_auto,model={engine.model}", "--seed", f"kind=static,value={load.seed}"]
    requests = load.requests + load.concurrency  # the first of each slot are left out
    argv += ["--profile", f"kind=concurrent,streams={load.concurrency}"]
    argv += ["--constraint", f"kind=max_requests,count={requests}"]
    data = f"kind=synthetic_text,prompt_tokens={load.input},output_tokens={load.output}"
    if load.spread:
        # it knows no uniform lengths: a normal distribution with the same deviation, cut at the same ends
        deviation = round((load.longest - load.shortest) / math.sqrt(12))
        data += f",output_tokens_stdev={deviation}"
        data += f",output_tokens_min={load.shortest},output_tokens_max={load.longest}"
    argv += ["--data", data]
    argv += ["--output", f"kind=json,path={out}"]
    done = ask(argv, {"HF_HUB_OFFLINE": "1"})
    if done.returncode != 0 or not out.exists():
        raise SystemExit(f"guidellm: exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    (benchmark,) = json.loads(out.read_text())["benchmarks"]
    answered = benchmark["requests"]["successful"]
    if len(answered) != requests:
        raise Lost(f"guidellm: {len(answered)} of {requests} requests were answered")
    speed = benchmark["metrics"]["output_tokens_per_second"]["successful"]["mean"]
    return means("GuideLLM", speed, [_answered(each) for each in answered], load.concurrency)


def _answered(said: Mapping[str, Any]) -> Answered:
    """What it calls time per output token is end to end ÷ tokens; its inter-token latency is the time after the first,
    ÷ (tokens − 1)."""
    return Answered(
        said["info"]["timings"]["request_start"],
        said["time_to_first_token_ms"] / 1e3,
        said["inter_token_latency_ms"] / 1e3,
        said["request_latency"],
        said["input_metrics"]["text_tokens"],
        said["output_metrics"]["text_tokens"],
    )
