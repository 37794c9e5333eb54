"""vLLM behind the gateway: its own load generator, tools, and Anthropic's client against vLLM's /v1/messages."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from anthropic import Anthropic
from openai import OpenAI
from real_cluster import Up, metric, up

from conftest import KEY, hashed

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(420)]  # the first test's time has the start of vLLM in it

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


@pytest.fixture(scope="module")
def cluster(vllm_cpu: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    pool = {
        "engine": "vllm",
        "command": [str(vllm_cpu.vllm)],
        "model": str(vllm_cpu.model),
        "args": {
            "max-model-len": 2048,
            "max-num-seqs": 8,
            "dtype": "bfloat16",
            "enforce-eager": True,
            "enable-auto-tool-choice": True,
            "tool-call-parser": "hermes",
        },
        "env": {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "2"},
        "version": "0.32.0+cpu",
    }
    folder = tmp_path_factory.mktemp("vllm")
    spec = {
        "gateway": {"store": str(folder / "kilocard.db")},
        "models": {"smol": {"pools": {"cpu": 1}}},
        "pools": {"cpu": pool},
        "tenants": {"team": {"keys": [hashed(KEY)]}},
    }
    with up(spec, folder) as cluster:
        cluster.wait_ready(1)
        yield cluster


def test_vllm_bench_serve(cluster: Up, vllm_cpu: Any, tmp_path: Path) -> None:
    """Every request answered, and the tokens that it counts are those that the gateway counted."""
    before = metric(cluster.admin("/metrics"), "kilocard_generation_tokens_total")
    result = tmp_path / "result.json"
    command = [
        str(vllm_cpu.vllm), "bench", "serve", "--backend", "openai-chat", "--endpoint", "/v1/chat/completions",
        "--base-url", f"http://127.0.0.1:{cluster.port}", "--header", f"Authorization=Bearer {KEY}",
        "--model", "smol", "--tokenizer", str(vllm_cpu.model), "--dataset-name", "random", "--ignore-eos",
        "--random-input-len", "64", "--random-output-len", "16", "--num-prompts", "24", "--request-rate", "8",
        "--save-result", "--result-filename", str(result), "--disable-tqdm",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    report = json.loads(result.read_text())
    assert report["completed"] == 24
    assert report["total_output_tokens"] == 24 * 16
    # It asks once more before it begins, to see that the address works.
    counted = metric(cluster.admin("/metrics"), "kilocard_generation_tokens_total") - before
    assert counted in {24 * 16, 25 * 16}


def test_tools(cluster: Up) -> None:
    client = OpenAI(base_url=f"http://127.0.0.1:{cluster.port}/v1", api_key=KEY, timeout=120)
    answer = client.chat.completions.create(
        model="smol",
        messages=[{"role": "user", "content": "What is the weather in Paris?"}],
        tools=[WEATHER],  # type: ignore[list-item]  # a plain dict, as in the documentation
        tool_choice={"type": "function", "function": {"name": "weather"}},
        max_tokens=64,
        temperature=0,
    )
    # A model of this size writes a call that can't be parsed now and then; that it begins one is enough.
    message = answer.choices[0].message
    assert message.tool_calls or "<tool_call>" in (message.content or ""), answer


def test_anthropics_client(cluster: Up) -> None:
    client = Anthropic(base_url=f"http://127.0.0.1:{cluster.port}", api_key=KEY, timeout=120)
    with client.messages.stream(
        model="smol", max_tokens=12, messages=[{"role": "user", "content": "What is a GPU?"}]
    ) as stream:
        text = "".join(stream.text_stream)
    assert text
