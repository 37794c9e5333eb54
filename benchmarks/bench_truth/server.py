"""The server that all load testers measure: the real vLLM on the CPU, with a small real model."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gateway.children import Child, answers, free_port, two_cores

#: seconds: torch is imported by three processes on one core that may be busy
START = 600.0
NAME = "smol"


@dataclass(frozen=True)
class Engine:
    """Programs and model of scripts/build-vllm-cpu."""

    vllm: Path
    python: Path
    model: Path

    @classmethod
    def built(cls) -> Engine:
        """Raises SystemExit when it has not been built."""
        script = Path(__file__).parents[2] / "scripts" / "build-vllm-cpu"
        done = subprocess.run([sys.executable, str(script), "--paths"], capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(done.stderr.strip())
        paths = dict(line.split("=", 1) for line in done.stdout.split())
        return cls(Path(paths["VLLM"]), Path(paths["PYTHON"]), Path(paths["MODEL"]))


#: the server's and the load testers' core: a tool that needs more processor time must not slow down what it measures
SERVER_CORE, TOOL_CORE = two_cores()


@contextmanager
def serving(engine: Engine, max_num_seqs: int, log: Path, more: Sequence[str] = ()) -> Iterator[str]:
    """Its URL, ready to answer. `more` arguments of vLLM replace those here. Prefix caching is on, as by default: a
    load tester that repeats prompts shows it."""
    port = free_port()
    argv = [str(engine.vllm), "serve", str(engine.model), "--served-model-name", NAME, "--host", "127.0.0.1"]
    argv += ["--port", str(port), "--max-model-len", "2048", "--max-num-seqs", str(max_num_seqs)]
    argv += ["--dtype", "bfloat16", "--enforce-eager", "--disable-uvicorn-access-log", *more]
    env = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    if SERVER_CORE is not None:
        env |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
    with Child(argv, core=SERVER_CORE, log=log, env=env) as child:
        url = f"http://127.0.0.1:{port}"
        child.wait_until(lambda: answers(f"{url}/health"), START)
        yield url


def ask(argv: Sequence[str], env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a load tester on its core."""

    def before_exec() -> None:
        if TOOL_CORE is not None:
            os.sched_setaffinity(0, {TOOL_CORE})

    process = subprocess.Popen(
        argv,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **env},
        preexec_fn=before_exec,
        start_new_session=True,
    )
    try:
        out, err = process.communicate()
    finally:
        # GuideLLM's workers outlive it when it is stopped
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(argv, process.returncode, out, err)
