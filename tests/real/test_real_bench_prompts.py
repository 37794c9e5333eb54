"""Prompt lengths, ignore_eos and gauges against real engines: what the load tester believes of them must be so."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from real_cluster import Up, up

from kilocard.backends import models
from kilocard.bench.accepted import Endpoint
from kilocard.bench.findings import prefix_hit_share
from kilocard.bench.inquiry import Answer, Inquiry
from kilocard.bench.prompt_counter import calibrate_prompts
from kilocard.bench.prompts import Prompts
from kilocard.bench.sampler import Sampler
from kilocard.bench.server import IgnoreEos, Server
from kilocard.bench.target import look, target_of
from kilocard.workload.request import WorkloadRequest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(420)]  # the start of an engine is within the first test's time

LENGTHS = (48, 100, 333, 512, 1000)


def _vllm(request: pytest.FixtureRequest) -> dict[str, Any]:
    built = request.getfixturevalue("vllm_cpu")
    return {
        "engine": "vllm",
        "command": [str(built.vllm)],
        "model": str(built.model),
        "args": {
            "max-model-len": 2048,
            "max-num-seqs": 4,
            "dtype": "bfloat16",
            "enforce-eager": True,
            "block-size": 32,
        },
        "env": {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"},
        "version": "0.32.0+cpu",
        "replicas": 1,
    }


def _llamacpp(request: pytest.FixtureRequest) -> dict[str, Any]:
    models.fetch()
    return {"engine": "llamacpp", "args": {"parallel": 2, "ctx-size": 8192, "threads": 1}, "replicas": 1}


POOLS = {"vllm": _vllm, "llamacpp": _llamacpp}


@pytest.fixture(
    scope="module",
    params=[pytest.param("vllm", marks=pytest.mark.vllm), pytest.param("llamacpp", marks=pytest.mark.llamacpp)],
)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    spec = {"models": {"smol": {"pools": {"cpu": 1}}}, "pools": {"cpu": POOLS[request.param](request)}}
    with up(spec, tmp_path_factory.mktemp(request.param)) as running:
        running.wait_ready(1)
        yield running


def engine_url(cluster: Up) -> str:
    return str(cluster.ready()[0]["url"])


async def answers(server: Server, asks: list[bytes]) -> list[Answer]:
    async with Inquiry(server.target) as inquiry:
        return [await inquiry.generate(server.target.path, body) for body in asks]


@pytest.mark.parametrize("behind_gateway", [False, True], ids=["engine", "gateway"])
@pytest.mark.parametrize("endpoint", ["chat", "completions"])
def test_prompts_have_the_asked_length_by_usage(cluster: Up, endpoint: Endpoint, behind_gateway: bool) -> None:
    url = f"http://127.0.0.1:{cluster.port}" if behind_gateway else engine_url(cluster)

    async def story() -> None:
        server = await look(target_of(url), endpoint=endpoint)
        calibration = await calibrate_prompts(server, LENGTHS, Random())
        assert calibration.exact, calibration
        prompts = Prompts(calibration, server.form, Random())
        got = await answers(server, [prompts.ask(tokens, 1).body for tokens in LENGTHS])
        assert [answer.usage and answer.usage.prompt for answer in got] == list(LENGTHS)

    asyncio.run(story())


def test_without_its_tokenize_page_the_count_is_the_same(cluster: Up) -> None:
    async def story() -> None:
        server = await look(target_of(engine_url(cluster)))
        assert server.tokenize is not None
        by_page = await calibrate_prompts(server, [300], Random())
        by_usage = await calibrate_prompts(replace(server, tokenize=None), [300], Random())
        assert by_usage == by_page

    asyncio.run(story())


def test_bn_08_ignore_eos_gives_answers_of_the_asked_length(cluster: Up) -> None:
    async def story() -> None:
        server = await look(target_of(engine_url(cluster)))
        assert server.ignore_eos is IgnoreEos.WORKS, server.notes
        prompts = Prompts(await calibrate_prompts(server, [], Random()), server.form, Random())
        got = await answers(server, [prompts.ask(60, output).body for output in (1, 7, 100)])
        assert [(answer.finish_reason, answer.usage and answer.usage.output) for answer in got] == [
            ("length", 1), ("length", 7), ("length", 100),
        ]  # fmt: skip

    asyncio.run(story())


def test_bn_01_distinct_prompts_find_nothing_in_the_prefix_cache(cluster: Up) -> None:
    """Shared ones do. Where the engine has counters; llama.cpp tells the cached tokens of each request."""

    async def share(server: Server, asks: list[bytes]) -> float | None:
        sampler = Sampler(server.target, server.pages, time.monotonic, period_s=0.2)
        sampler.start()
        await asyncio.sleep(0.3)
        got = await answers(server, asks)
        await asyncio.sleep(0.3)
        samples = await asyncio.to_thread(sampler.stop)
        assert all(answer.status == 200 for answer in got)
        assert samples[-1].running == 0
        assert sampler.failures == 0
        by_counters = prefix_hit_share([], samples)
        if by_counters is not None:
            return by_counters
        usages = [answer.usage for answer in got if answer.usage is not None]
        return sum(usage.cached or 0 for usage in usages) / sum(usage.prompt or 0 for usage in usages)

    async def story() -> None:
        server = await look(target_of(engine_url(cluster)))
        calibration = await calibrate_prompts(server, [], Random())
        prompts = Prompts(calibration, server.form, Random())
        distinct = await share(server, [prompts.ask(400, 1).body for _ in range(6)])
        assert distinct is not None
        assert distinct <= (calibration.overhead + 1) / 400, "no more than the chat template"
        asks = [prompts.of(WorkloadRequest(0.0, 400, 1, blocks=(1,), block_tokens=320)).body for _ in range(6)]
        shared = await share(server, asks)
        assert shared is not None
        assert shared > 0.5

    asyncio.run(story())
