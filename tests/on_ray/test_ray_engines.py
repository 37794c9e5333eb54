"""One story on Ray with real engines: kilocard's emulated one, and vLLM on the CPU."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from fleet import Fleet, all_gone, run, running
from openai import AsyncOpenAI

from kilocard.backends.base import ReplicaState as S
from kilocard.engines.registry import engine
from kilocard.spec.model import ClusterSpec, DrainSpec, ModelSpec, PoolSpec, ReplicaRange, StartSpec

QUICK = StartSpec(backoff=0.1)


def emulated(request: pytest.FixtureRequest) -> PoolSpec:
    return PoolSpec("p", "emulated", replicas=ReplicaRange(1, 4), start=QUICK, drain=DrainSpec(60))


def vllm(request: pytest.FixtureRequest) -> PoolSpec:
    built = request.getfixturevalue("vllm_cpu")
    return PoolSpec(
        "p",
        "vllm",
        command=(str(built.vllm),),
        model=str(built.model),
        args={"max-model-len": 1024, "max-num-seqs": 4, "dtype": "bfloat16", "enforce-eager": True},
        env={"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"},
        version="0.32.0+cpu",
        start=QUICK,
        drain=DrainSpec(60),
    )


def descendants(pid: int) -> list[int]:
    """A process and all below it."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(found for child in children for found in descendants(int(child)))]


def engine_of(url: str) -> int:
    """Process id of the engine that listens on this address (its command line has the port)."""
    port = url.rpartition(":")[2]
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            words = (folder / "cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        if port in words and "guard.py" not in " ".join(words):
            return int(folder.name)
    raise AssertionError(f"nobody has --port {port}")


async def ask(url: str, tokens: int = 8) -> int:
    """Pieces of one streamed answer."""
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0, timeout=120) as client:
        stream = await client.chat.completions.create(
            model="m",
            messages=[{"role": "user", "content": "Tell me a long story about a dragon who learns to count."}],
            max_tokens=tokens,
            stream=True,
            extra_body={"ignore_eos": True},
        )
        return len([chunk async for chunk in stream if chunk.choices and chunk.choices[0].delta.content])


@pytest.mark.timeout(900)
@pytest.mark.parametrize("make", [emulated, pytest.param(vllm, marks=[pytest.mark.vllm, pytest.mark.slow])])
def test_start_kill_a_process_kill_the_actor_drain_and_leave_nothing(
    nodes: Any, node: Any, request: pytest.FixtureRequest, make: Any
) -> None:
    import ray

    pool = make(request)
    spec = ClusterSpec(models={"m": ModelSpec("m", {"p": 1})}, pools={"p": pool})
    every: set[int] = set()

    async def ready(fleet: Fleet, times: int) -> str:
        await fleet.until(lambda: fleet.kinds().count("Found") == times and fleet.states()["p-0"] is S.READY, 300)
        url = fleet.backend.describe("p-0").url
        assert url is not None
        every.update(descendants(engine_of(url)))
        assert await ask(url) > 0
        return str(url)

    async def test() -> None:
        async with running(nodes, spec, engine=engine(pool.engine)) as fleet:
            url = await ready(fleet, 1)
            victim = descendants(engine_of(url))[-1]  # vLLM's is a worker process below the server
            os.kill(victim, signal.SIGKILL)
            await fleet.until(lambda: "Lost" in fleet.kinds(), 60)
            url = await ready(fleet, 2)
            [actor] = [ray.get_actor(name) for name in ray.util.list_named_actors()]
            gone = descendants(engine_of(url))
            ray.kill(actor)
            await all_gone(gone, 10)
            url = await ready(fleet, 3)
            stream = asyncio.create_task(ask(url, 64))
            await asyncio.sleep(0.3)
            drained = asyncio.create_task(fleet.backend.drain("p-0", "a test"))
            assert await stream > 40, "a drain cuts no stream"
            assert not drained.done()
            fleet.backend.idle("p-0")
            await asyncio.wait_for(drained, 60)
            assert fleet.kinds()[-2:] == ["Leaving", "Lost"]
        await all_gone(sorted(every), 10)

    run(test, 850)


def test_scale_up_and_down_with_emulated_replicas(nodes: Any, node: Any, request: pytest.FixtureRequest) -> None:
    spec = ClusterSpec(models={"m": ModelSpec("m", {"p": 1})}, pools={"p": emulated(request)})

    async def test() -> None:
        async with running(nodes, spec, engine=engine("emulated")) as fleet:
            await fleet.until_ready("p-0")
            await fleet.backend.scale("p", 2)
            await fleet.until_ready("p-0", "p-1")
            urls = [status.url for status in fleet.backend.replicas()]
            assert await asyncio.gather(*map(ask, urls)) == [8, 8]
            await fleet.backend.scale("p", 1)
            await fleet.until(lambda: fleet.kinds("p-1") == ["Found", "Leaving"])
            fleet.backend.idle("p-1")
            await fleet.until(lambda: fleet.kinds("p-1") == ["Found", "Leaving", "Lost"])
            assert fleet.states()["p-0"] is S.READY

    run(test)


if sys.platform != "linux":
    pytestmark = pytest.mark.skip("reads /proc")
