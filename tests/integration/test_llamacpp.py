"""Real answers from llama.cpp on the CPU: the wheel's server with the small default model, as `kilocard up` runs it."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import time
from pathlib import Path
from typing import Any

import pytest

from kilocard.backends import models
from kilocard.backends.base import ReplicaState
from kilocard.backends.gpus import Inventory
from kilocard.backends.local import LocalBackend
from kilocard.core.errors import BackendError
from kilocard.core.replica import Change, Found
from kilocard.engines.registry import engine
from kilocard.net.client import fetch
from kilocard.spec.model import ClusterSpec, ModelSpec, PoolSpec
from parts import part_missing

pytestmark = [pytest.mark.llamacpp, pytest.mark.timeout(180)]  # a 93 MB download the first time, a busy machine


@pytest.fixture(scope="module")
def model() -> Path:
    if importlib.util.find_spec("xllamacpp") is None:
        part_missing("pip install 'kilocard[local]'")
    try:
        return models.fetch()
    except BackendError as error:
        part_missing(str(error))


def test_the_fetched_file_is_the_pinned_one(model: Path) -> None:
    assert model == models.path()
    assert models.verify()
    with model.open("rb") as file:
        head = file.read(4096)
    key = b"llama.context_length"
    at = head.index(key) + len(key) + 4  # the value's type comes first
    assert int.from_bytes(head[at : at + 4], "little") == models.DEFAULT.context


async def ask(url: str, **body: Any) -> Any:
    content = json.dumps({"model": "smol", "temperature": 0, **body}).encode()
    headers = [("content-type", "application/json")]
    answer = await fetch(url, method="POST", headers=headers, body=content, timeout=60)
    assert answer.status == 200, answer
    return json.loads(answer.body)


def test_start_ready_answer_stop(model: Path, tmp_path: Path) -> None:
    pool = PoolSpec("tiny", "llamacpp", args={"parallel": 2})
    spec = ClusterSpec(models={"smol": ModelSpec("smol", {"tiny": 1})}, pools={"tiny": pool})

    async def story() -> None:
        news: list[Change] = []
        backend = LocalBackend(spec, news.append, tmp_path, engine, gpus=Inventory((), "a test"))
        try:
            await backend.open()
            end = time.monotonic() + 90
            while not news:
                assert time.monotonic() < end, backend.describe("tiny-0")
                await asyncio.sleep(0.05)
            assert isinstance(news[0], Found), news
            url = news[0].endpoint.url
            said = await ask(f"{url}/v1/completions", prompt="The capital of France is", max_tokens=4)
            assert "Paris" in said["choices"][0]["text"]
            said = await ask(f"{url}/v1/chat/completions", messages=[{"role": "user", "content": "Hi!"}], max_tokens=4)
            assert said["choices"][0]["message"]["content"].strip()
            assert said["usage"]["completion_tokens"] == 4
            props = json.loads((await fetch(f"{url}/v1/models", timeout=10)).body)["data"][0]["meta"]
            assert props["n_ctx"] == 4096, "each of two slots has its own share of the context"
            metrics = await fetch(f"{url}/metrics", timeout=10)
            assert b"llamacpp:requests_processing" in metrics.body
            status = backend.describe("tiny-0")
            assert status.state is ReplicaState.READY
            assert status.phases.total is not None
            began = time.monotonic()
            await backend.stop("tiny-0", "a test")
            assert time.monotonic() - began < 5, "SIGTERM ends it at once"
            assert backend.describe("tiny-0").restarts == 0
        finally:
            await backend.close()

    asyncio.run(story())


def test_a_file_that_is_no_model_ends_in_a_crash_loop_that_says_so(model: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"not a model")
    pool = PoolSpec("tiny", "llamacpp", model=str(broken))
    spec = ClusterSpec(models={"smol": ModelSpec("smol", {"tiny": 1})}, pools={"tiny": pool})

    async def story() -> None:
        backend = LocalBackend(spec, lambda change: None, tmp_path, engine, gpus=Inventory((), "a test"))
        try:
            await backend.open()
            end = time.monotonic() + 60
            while backend.describe("tiny-0").state is not ReplicaState.RESTARTING:
                assert time.monotonic() < end, backend.describe("tiny-0")
                await asyncio.sleep(0.05)
            assert "the model file can't be loaded" in backend.describe("tiny-0").reason
        finally:
            await backend.close()

    asyncio.run(story())
